// Shows the effect of an act while its form is edited, and filters lists while the filter is typed.
(() => {
  'use strict';
  const waiting = new WeakMap(); // the running request for the effect of each form

  function ask(form, wait) {
    clearTimeout(waiting.get(form)?.timer);
    waiting.get(form)?.stop.abort();
    const button = form.querySelector('#act-do');
    if (button) button.disabled = true; // until the page shows the effect of the present fields
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
      if (!fresh) { // the session has ended, or the subject is unknown now
        const message = page.querySelector('main p');
        place.textContent = message ? message.textContent : 'The effect is unknown at the moment.';
      } else {
        place.replaceChildren(...fresh.childNodes);
        if (button) button.disabled = page.querySelector('#act-do')?.disabled ?? true;
        window.sluice?.times(place);
      }
    } catch (e) {
      if (e.name === 'AbortError') return;
      place.textContent = 'Sluice does not respond, so the effect is unknown.';
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
    if (button) setTimeout(() => { button.disabled = true; }); // a second click does not repeat the act
  });

  // Filters the rows on the page while the filter is typed. Enter sends the filter to the server.
  const filter = document.querySelector('input[data-filter]');
  const table = filter && document.getElementById(filter.dataset.filter);
  filter?.addEventListener('input', () => {
    const low = filter.value.trim().toLowerCase();
    for (const row of table?.tBodies[0].rows ?? []) row.hidden = !row.textContent.toLowerCase().includes(low);
  });
})();
