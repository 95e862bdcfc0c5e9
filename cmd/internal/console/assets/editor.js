// Checks the policy while it is edited, and marks wrong lines.
(() => {
  'use strict';
  const form = document.getElementById('editor');
  if (!form) return;
  const text = document.getElementById('text');
  const gutter = document.getElementById('gutter');
  const state = document.getElementById('editor-state');
  const apply = document.getElementById('apply');
  const base = form.elements.base.value.replaceAll('\r\n', '\n');
  let wrong = new Set();
  let timer, stop, sent = false;

  function number() {
    const n = text.value.split('\n').length;
    const lines = [];
    for (let i = 1; i <= n; i++) {
      const line = document.createElement('div');
      line.textContent = i;
      if (wrong.has(i)) line.className = 'wrong';
      lines.push(line);
    }
    gutter.replaceChildren(...lines);
    gutter.scrollTop = text.scrollTop;
  }
  text.addEventListener('scroll', () => { gutter.scrollTop = text.scrollTop; });

  const edited = () => text.value !== base;
  function mark(plan) {
    wrong = new Set([...plan.querySelectorAll('#problems [data-line]')].map(p => Number(p.dataset.line)).filter(n => n > 0));
    text.toggleAttribute('aria-invalid', wrong.size > 0);
    if (wrong.size) text.setAttribute('aria-invalid', 'true');
    number();
  }

  async function check() {
    stop?.abort();
    stop = new AbortController();
    if (apply) apply.disabled = true;
    if (!edited()) {
      document.getElementById('plan').replaceChildren();
      wrong = new Set();
      text.removeAttribute('aria-invalid');
      state.textContent = '';
      number();
      return;
    }
    state.textContent = 'Checking …';
    try {
      const answer = await fetch('/policy/check', { method: 'POST', body: new URLSearchParams(new FormData(form)), headers: { Accept: 'text/html' }, signal: stop.signal });
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const plan = page.getElementById('plan');
      if (!plan) {
        const message = page.querySelector('main p');
        state.textContent = message ? message.textContent : 'The policy could not be checked.';
        return;
      }
      mark(plan);
      if (apply) apply.disabled = page.getElementById('apply')?.disabled ?? true;
      document.getElementById('plan').replaceChildren(...plan.childNodes);
      state.textContent = wrong.size || document.querySelector('#plan .callout-bad, #problems') ? 'The policy has problems.' : 'Checked.';
    } catch (e) {
      if (e.name !== 'AbortError') state.textContent = 'Sluice does not respond, so the policy is not checked.';
    }
  }

  text.addEventListener('input', () => {
    number();
    if (apply) apply.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(check, 350);
  });
  form.addEventListener('submit', e => {
    if (e.submitter?.id === 'check') { e.preventDefault(); clearTimeout(timer); check(); return; }
    if (e.submitter?.id !== 'download') sent = true;
  });
  addEventListener('beforeunload', e => { if (edited() && !sent) e.preventDefault(); });
  document.getElementById('copy-text')?.addEventListener('click', async () => {
    try { await navigator.clipboard.writeText(text.value); window.sluice?.toast('Copied.'); } catch { text.select(); }
  });
  addEventListener('click', e => {
    const link = e.target.closest('.line-link');
    if (!link) return;
    e.preventDefault();
    const n = Number(link.dataset.line);
    const lines = text.value.split('\n');
    const start = lines.slice(0, n - 1).join('\n').length + (n > 1 ? 1 : 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[n - 1] ?? '').length);
    text.scrollTop = Math.max(0, (n - 5) * 20);
  });
  mark(document.getElementById('plan'));
})();
