// The effect of an act follows its form; lists are filtered as one types.
(() => {
  'use strict';
  const waiting = new WeakMap(); // forms whose effect is asked for

  function ask(form, wait) {
    clearTimeout(waiting.get(form)?.timer);
    waiting.get(form)?.stop.abort();
    const button = form.querySelector('#act-do');
    if (button) button.disabled = true; // until the effect is that of what is written now
    const stop = new AbortController();
    const timer = setTimeout(() => refresh(form, stop.signal), wait);
    waiting.set(form, { timer, stop });
  }

  async function refresh(form, signal) {
    const place = form.querySelector('#effect');
    const button = form.querySelector('#act-do');
    place.setAttribute('aria-busy', 'true');
    try {
      const sent = new URLSearchParams(new FormData(form));
      sent.set('preview', '1');
      const answer = await fetch(form.action, { method: 'POST', body: sent, headers: { Accept: 'text/html' }, signal });
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const fresh = page.querySelector('#effect');
      if (!fresh) { // the session has ended, or the subject has gone
        const said = page.querySelector('main p');
        place.textContent = said ? said.textContent : 'The effect cannot be told now.';
      } else {
        place.replaceChildren(...fresh.childNodes);
        if (button) button.disabled = page.querySelector('#act-do')?.disabled ?? true;
        window.sluice?.times(place);
      }
    } catch (e) {
      if (e.name === 'AbortError') return;
      place.textContent = 'Sluice does not answer, so the effect cannot be told now.';
    }
    place.removeAttribute('aria-busy');
  }

  addEventListener('input', e => {
    const form = e.target.closest('form[data-act]');
    if (form) ask(form, e.target.tagName === 'SELECT' ? 0 : 300);
  });
  addEventListener('submit', e => {
    const form = e.target;
    if (!form.matches?.('form[data-act]')) return;
    if (e.submitter?.name === 'preview') { e.preventDefault(); ask(form, 0); return; }
    const button = form.querySelector('#act-do');
    if (button?.disabled) { e.preventDefault(); return; }
    if (button) setTimeout(() => { button.disabled = true; }); // one click is one act
  });

  // The rows that are there are filtered at once; Enter asks the server for all.
  const filter = document.querySelector('input[data-filter]');
  const table = filter && document.getElementById(filter.dataset.filter);
  filter?.addEventListener('input', () => {
    const low = filter.value.trim().toLowerCase();
    for (const row of table?.tBodies[0].rows ?? []) row.hidden = !row.textContent.toLowerCase().includes(low);
  });
})();
