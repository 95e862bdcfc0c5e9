// Before the page is drawn, so that it does not flash: what was chosen wins over the system.
(() => {
  document.documentElement.classList.add('js');
  try {
    const chosen = localStorage.getItem('sluice-theme');
    if (chosen === 'dark' || chosen === 'light') document.documentElement.dataset.theme = chosen;
  } catch { /* a browser that keeps nothing goes by the system */ }
})();
