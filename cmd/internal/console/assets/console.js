// What all pages need: times in the reader's zone, keys, dark and light theme, dialogs, and the undo button.
(() => {
  'use strict';
  const root = document.documentElement;
  const two = n => String(n).padStart(2, '0');

  // The server writes times in UTC. The title of a time keeps the UTC form.
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
    if (s < 60) return s + '\u00a0s';
    if (s < 3600) return Math.floor(s / 60) + '\u00a0min';
    if (s < 48 * 3600) return Math.floor(s / 3600) + '\u00a0h' + (s < 36000 && Math.floor(s / 60) % 60 ? '\u00a0' + Math.floor(s / 60) % 60 + '\u00a0min' : '');
    return s < 730 * 86400 ? Math.floor(s / 86400) + '\u00a0days' : Math.floor(s / 86400 / 365).toLocaleString('en') + '\u00a0years';
  }
  times(document);
  setInterval(() => { if (!document.hidden) times(document); }, 10000);

  // An element with data-again is reloaded at the interval in this attribute, in seconds, unless the reader has selected
  // text. The element named in data-lost is shown while the server does not respond.
  for (const part of document.querySelectorAll('[data-again]')) {
    setInterval(async () => {
      if (document.hidden || !getSelection().isCollapsed) return;
      let next;
      try {
        const answer = await fetch(location.href, { headers: { Accept: 'text/html' } });
        if (answer.redirected) { location.reload(); return; }
        if (answer.ok) next = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById(part.id);
      } catch { /* below */ }
      document.getElementById(part.dataset.lost).hidden = !!next;
      if (!next || !getSelection().isCollapsed) return;
      const had = part.contains(document.activeElement) ? document.activeElement : null;
      const again = had && same(had);
      part.replaceChildren(...next.childNodes);
      times(part);
      if (had) ((again && part.querySelector(again)) || main).focus({ preventScroll: true });
    }, part.dataset.again * 1000);
  }

  // On a narrow screen, the tab of the current page may be out of view.
  document.querySelector('.tabs [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });

  // toast shows a message for a few seconds.
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
    try { localStorage.setItem('sluice-theme', root.dataset.theme); } catch { /* the choice then applies to this page only */ }
    dispatchEvent(new Event('themechange'));
  });

  const main = document.querySelector('main');
  let before; // the element that had the focus before the search

  addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const typing = e.target.closest?.('input, textarea, select, [contenteditable]');
    if (e.key === 'Escape') {
      if (document.querySelector('dialog[open]')) return; // the browser closes it
      if (typing) { typing.blur(); (before?.isConnected ? before : main)?.focus({ preventScroll: true }); return; }
      const back = document.querySelector('[data-back]');
      if (back) back.click(); else if (location.pathname !== '/') history.length > 1 ? history.back() : location.assign('/');
      return;
    }
    if (typing) return;
    if (e.key === '/') {
      before = document.activeElement;
      document.getElementById('search')?.focus();
      e.preventDefault();
    } else if (/^[1-9]$/.test(e.key)) {
      const rule = document.querySelectorAll('[data-rule-link]')[e.key - 1];
      if (rule) rule.click();
    }
  });

  // same returns a selector for the element that replaces el when a part of the page is reloaded.
  function same(el) {
    if (el.id) return '#' + CSS.escape(el.id);
    const href = el.getAttribute('href');
    return href ? 'a[href="' + CSS.escape(href) + '"]' : null;
  }

  // The page of a link with data-dialog, which has a form, is shown as a dialog.
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
    const again = same(link);
    dialog.addEventListener('close', () => {
      dialog.remove(); // an update of the page may have replaced the link
      (link.isConnected ? link : (again && document.querySelector(again)) || main)?.focus();
    });
    document.body.append(dialog);
    times(dialog);
    dialog.showModal();
    // Focus the first field, or else a button.
    (body.querySelector('input:not([type=hidden]), select, textarea') || body.querySelector('#act-do:enabled, [data-copy], [data-close]'))?.focus();
  });

  // Counts down the seconds in which an act can be undone.
  const undo = document.getElementById('undo');
  if (undo) {
    let left = Number(undo.dataset.left);
    const tick = setInterval(() => {
      if (--left <= 0) { clearInterval(tick); undo.form.remove(); return; }
      undo.querySelector('.left').textContent = '(' + left + ' s)';
    }, 1000);
  }
  // Removes the notice from the address, so that the address can be bookmarked or shared.
  const here = new URL(location);
  if (here.searchParams.delete('done'), here.href !== location.href) history.replaceState(history.state, '', here);

  // After a link from another site, the browser sends no cookie, although the reader may have signed in.
  if (document.getElementById('sign-in') && !document.getElementById('sign-in-said')) {
    fetch('/sign-in', { method: 'HEAD', redirect: 'manual' }).then(a => {
      if (a.type === 'opaqueredirect') location.replace(document.querySelector('[name=next]').value);
    }).catch(() => {});
  }

  window.sluice = { times, toast, span, same };
})();
