// Sets the theme before the page is drawn, to avoid a flash. The reader's choice takes precedence over the system's.
(() => {
  document.documentElement.classList.add('js');
  try {
    const chosen = localStorage.getItem('sluice-theme');
    if (chosen === 'dark' || chosen === 'light') document.documentElement.dataset.theme = chosen;
  } catch { /* without storage, the theme is that of the system */ }
})();
