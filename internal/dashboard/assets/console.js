// What all pages have: times in the reader's zone, keys, dark and light, dialogs, the undo button.
(() => {
  'use strict';
  const root = document.documentElement;
  const two = n => String(n).padStart(2, '0');

  // Times are written on the server in UTC, which stays in their titles.
  function times(within) {
    const now = new Date();
    for (const t of within.querySelectorAll('time[data-clock]')) {
      const at = new Date(t.dateTime);
      if (isNaN(at)) continue;
      const day = at.toDateString() === now.toDateString() ? '' :
        at.toLocaleDateString(undefined, { month: 'short', day: 'numeric', year: at.getFullYear() === now.getFullYear() ? undefined : 'numeric' }) + ' ';
      t.textContent = day + two(at.getHours()) + ':' + two(at.getMinutes()) + (t.dataset.clock === 'seconds' ? ':' + two(at.getSeconds()) : '');
    }
    for (const t of within.querySelectorAll('time[data-ago]')) {
      const s = Math.round((now - new Date(t.dateTime)) / 1000);
      if (!isNaN(s)) t.textContent = s < -1 ? 'in ' + span(-s) : s < 2 ? 'just now' : span(s) + ' ago';
    }
  }
  function span(s) {
    if (s < 60) return s + ' s';
    if (s < 3600) return Math.floor(s / 60) + ' min';
    if (s < 48 * 3600) return Math.floor(s / 3600) + ' h' + (s < 36000 && Math.floor(s / 60) % 60 ? ' ' + Math.floor(s / 60) % 60 + ' min' : '');
    return Math.floor(s / 86400) + ' days';
  }
  times(document);
  setInterval(() => { if (!document.hidden) times(document); }, 10000);

  // Says something in passing.
  function toast(text) {
    const t = document.createElement('div');
    t.className = 'toast';
    t.textContent = text;
    document.getElementById('toasts').append(t);
    setTimeout(() => t.remove(), 5000);
  }

  document.getElementById('theme')?.addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    try { localStorage.setItem('sluice-theme', root.dataset.theme); } catch { /* for this page only, then */ }
    dispatchEvent(new Event('themechange'));
  });

  addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const typing = e.target.closest?.('input, textarea, select, [contenteditable]');
    if (e.key === 'Escape') {
      if (document.querySelector('dialog[open]')) return; // which closes by itself
      if (typing) { typing.blur(); return; }
      const back = document.querySelector('[data-back]');
      if (back) back.click(); else if (location.pathname !== '/') history.length > 1 ? history.back() : location.assign('/');
      return;
    }
    if (typing) return;
    if (e.key === '/') {
      document.getElementById('search')?.focus();
      e.preventDefault();
    } else if (/^[1-9]$/.test(e.key)) {
      const rule = document.querySelectorAll('[data-rule-link]')[e.key - 1];
      if (rule) rule.click();
    }
  });

  // A link with data-dialog leads to a page that has a form. It is shown here instead.
  addEventListener('click', async e => {
    const close = e.target.closest('[data-close]');
    if (close && close.closest('dialog')) { close.closest('dialog').close(); e.preventDefault(); return; }
    const copy = e.target.closest('[data-copy]');
    if (copy) {
      try { await navigator.clipboard.writeText(copy.dataset.copy || location.href); toast('Copied.'); } catch { toast('This browser does not let pages copy.'); }
      return;
    }
    const link = e.target.closest('a[data-dialog]');
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    e.preventDefault();
    let content;
    try {
      const answer = await fetch(link.href, { headers: { Accept: 'text/html' } });
      if (answer.redirected) { location.assign(link.href); return; }
      content = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main');
    } catch { /* below */ }
    if (!content) { location.assign(link.href); return; }
    const dialog = document.createElement('dialog');
    const head = document.createElement('div');
    head.className = 'dialog-head';
    const title = document.createElement('h2');
    const heading = content.querySelector('h1');
    title.textContent = heading ? heading.textContent : document.title;
    title.id = 'dialog-title';
    dialog.setAttribute('aria-labelledby', title.id);
    heading?.remove();
    const x = document.createElement('button');
    x.type = 'button'; x.className = 'icon-button'; x.dataset.close = ''; x.textContent = '×'; x.setAttribute('aria-label', 'Close');
    head.append(title, x);
    const body = document.createElement('div');
    body.className = 'dialog-body';
    body.append(...content.childNodes);
    dialog.append(head, body);
    dialog.addEventListener('close', () => { dialog.remove(); link.focus(); });
    document.body.append(dialog);
    times(dialog);
    dialog.showModal();
  });

  // The seconds in which something can be undone.
  const undo = document.getElementById('undo');
  if (undo) {
    let left = Number(undo.dataset.left);
    const tick = setInterval(() => {
      if (--left <= 0) { clearInterval(tick); undo.form.remove(); return; }
      undo.querySelector('.left').textContent = '(' + left + ' s)';
    }, 1000);
  }
  // The address without what was done, so that it can be kept and sent.
  const here = new URL(location);
  if (here.searchParams.delete('done'), here.href !== location.href) history.replaceState(history.state, '', here);

  // Whoever comes by a link from elsewhere has no cookie yet, though he may have signed in.
  if (document.getElementById('sign-in') && !document.getElementById('sign-in-said')) {
    fetch('/sign-in', { method: 'HEAD', redirect: 'manual' }).then(a => {
      if (a.type === 'opaqueredirect') location.replace(document.querySelector('[name=next]').value);
    }).catch(() => {});
  }

  window.sluice = { times, toast, span };
})();
