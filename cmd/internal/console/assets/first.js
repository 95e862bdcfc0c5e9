// The live parts of the first page: updates from the server every two seconds, and the chart.
(() => {
  'use strict';
  const root = document.documentElement;
  const place = document.getElementById('chart');
  const words = document.getElementById('live-words');
  const state = document.getElementById('live-state');
  if (!state) return;
  const order = ['deny', 'marked', 'would', 'degraded', 'delayed', 'allow'];
  const names = ['Denied', 'Marked', 'Would be denied', 'Without the store', 'Delayed', 'Allowed'];
  const hidden = new Set();
  const two = n => String(n).padStart(2, '0');
  const clock = s => { const d = new Date(s * 1000); return two(d.getHours()) + ':' + two(d.getMinutes()); };
  const exactly = s => { const d = new Date(s * 1000); return clock(s) + ':' + two(d.getSeconds()); };
  const rate = v => v == null ? '–' : v === 0 ? '0' : v < 0.01 ? '<0.01' : v < 1 ? v.toFixed(2) : v < 100 ? String(Math.round(v * 10) / 10) :
    v < 1e4 ? Math.round(v).toLocaleString('en') : v < 1e6 ? Math.round(v / 100) / 10 + '\u00a0k' : Math.round(v / 1e5) / 10 + '\u00a0M';
  const color = name => getComputedStyle(root).getPropertyValue('--' + name).trim();

  let stream, last = 0, plot, data, failures = 0, retry;

  // --- updates from the server

  function query() { return location.search.replace(/[?&]done=[^&]*/, ''); }

  function open() {
    close();
    if (document.hidden) return;
    stream = new EventSource('/live' + query());
    stream.addEventListener('view', e => { failures = 0; told(JSON.parse(e.data)); });
    stream.addEventListener('ended', () => { close(); location.reload(); });
    stream.onerror = () => {
      // A browser reconnects automatically, but not after an answer that is not a stream.
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        retry = setTimeout(open, Math.min(60000, 5000 * 2 ** failures++));
      }
      age();
    };
  }
  function close() {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = undefined;
  }

  function told(update) {
    last = Date.now();
    if (document.querySelector('[data-reload]') && update.chart.rates.some(r => r.some(v => v > 0))) { location.reload(); return; }
    for (const [id, html] of Object.entries(update.html)) put(id, html);
    if (update.say) document.getElementById('said').textContent = update.say;
    if (place) draw(update.chart);
    age();
  }

  // Replaces a part of the page, unless the reader has selected text in it, and keeps the focus.
  function put(id, html) {
    const part = document.getElementById(id);
    if (!part) return;
    const chosen = getSelection();
    if (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) { pending.set(id, html); return; }
    pending.delete(id);
    const had = part.contains(document.activeElement) ? document.activeElement : null;
    const same = had && window.sluice.same(had);
    part.innerHTML = html;
    window.sluice.times(part);
    if (had) ((same && part.querySelector(same)) || document.querySelector('main')).focus({ preventScroll: true });
  }
  const pending = new Map();
  document.addEventListener('selectionchange', () => {
    if (pending.size && getSelection().isCollapsed) for (const [id, html] of [...pending]) put(id, html);
  });

  function age() {
    if (!last) return;
    const s = Math.round((Date.now() - last) / 1000);
    const stale = s > 10;
    state.dataset.state = stale ? 'stale' : 'live';
    root.classList.toggle('is-stale', stale);
    words.textContent = stale ? 'No update for ' + window.sluice.span(s) + ': the page shows the state of ' + exactly(last / 1000) : 'Live';
    words.title = new Date(last).toISOString();
  }
  setInterval(() => { if (!document.hidden) age(); }, 1000);
  document.addEventListener('visibilitychange', () => document.hidden ? close() : open());
  addEventListener('pagehide', close);
  addEventListener('pageshow', e => { if (e.persisted) open(); });

  // --- filters: follow links without reloading the page

  function go(href) {
    history.pushState(null, '', href);
    open();
  }
  addEventListener('popstate', open);
  addEventListener('click', e => {
    const link = e.target.closest?.('a[data-filter]');
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button || e.defaultPrevented) return;
    e.preventDefault();
    go(link.getAttribute('href'));
  });
  document.getElementById('copy-link')?.addEventListener('click', async () => {
    const to = new URL(location), now = data ? data.to : Math.round(Date.now() / 1000);
    if (!to.searchParams.has('from')) {
      to.searchParams.set('from', data ? data.from : now - 3600);
      to.searchParams.set('to', now);
    }
    try { await navigator.clipboard.writeText(to.href); window.sluice.toast('Copied a link to this time.'); } catch { window.sluice.toast('This browser does not let pages copy.'); }
  });

  // --- the chart

  if (!place || !window.uPlot) { open(); return; }

  // Turns the entries of the legend into buttons that show or hide a series.
  for (const entry of document.querySelectorAll('#chart-legend [data-series]')) {
    const i = order.indexOf(entry.dataset.series);
    if (i < 0 && entry.dataset.series !== 'yesterday') continue;
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'entry';
    button.dataset.series = entry.dataset.series;
    button.setAttribute('aria-pressed', 'true');
    button.title = 'Show or hide';
    button.append(...entry.childNodes);
    entry.replaceWith(button);
    button.addEventListener('click', () => {
      const name = button.dataset.series;
      hidden.has(name) ? hidden.delete(name) : hidden.add(name);
      button.setAttribute('aria-pressed', String(!hidden.has(name)));
      if (data) draw(data);
    });
  }

  function hatch(name) {
    const size = 8 * devicePixelRatio, c = document.createElement('canvas');
    c.width = c.height = size;
    const g = c.getContext('2d'), ink = color(name);
    g.fillStyle = ink; g.globalAlpha = 0.35; g.fillRect(0, 0, size, size);
    g.globalAlpha = 1; g.strokeStyle = ink; g.lineWidth = size / 3;
    for (const x of [-size, 0, size]) { g.beginPath(); g.moveTo(x - 1, size + 1); g.lineTo(x + size + 1, -1); g.stroke(); }
    return g.createPattern(c, 'repeat');
  }
  function withAlpha(ink, alpha) {
    const c = document.createElement('canvas').getContext('2d');
    c.fillStyle = ink;
    return c.fillStyle + Math.round(alpha * 255).toString(16).padStart(2, '0');
  }

  // stack returns the x values and the upper edge of each outcome, from the top of the stack to the bottom.
  function stack(d) {
    const edges = [], sum = new Array(d.at.length).fill(0);
    order.forEach((name, i) => {
      if (!hidden.has(name)) d.rates[i].forEach((v, j) => { sum[j] += v; });
      edges.push(sum.slice());
    });
    return [d.at, ...edges.reverse(), hidden.has('yesterday') ? d.at.map(() => null) : d.before || d.at.map(() => null)];
  }

  function draw(d) {
    data = d;
    const shown = stack(d);
    const tall = innerWidth < 720 ? 200 : 240;
    if (plot) {
      plot.setData(shown, false);
      plot.setScale('x', { min: d.from, max: d.to });
      place.dataset.points = d.at.length;
      place.dataset.last = d.at.at(-1) || '';
      mark();
      return;
    }
    document.getElementById('chart-drawn')?.remove();
    const paint = { allow: withAlpha(color('allow'), 0.4), deny: color('deny'), marked: color('marked'), would: hatch('would'), degraded: color('degraded'), delayed: color('delayed') };
    const edge = { allow: color('allow'), deny: color('deny'), marked: color('marked'), would: color('would'), degraded: color('degraded'), delayed: color('delayed') };
    const axis = { stroke: color('muted'), font: '11px ' + getComputedStyle(document.body).fontFamily, grid: { stroke: color('line'), width: 1 }, ticks: { show: false } };
    const series = [{}];
    for (const name of [...order].reverse()) {
      series.push({ stroke: name === 'allow' ? edge.allow : edge[name], width: name === 'allow' ? 1 : 0, fill: paint[name], points: { show: false } });
    }
    series.push({ stroke: color('muted'), width: 1.5, dash: [2, 3], points: { show: false }, spanGaps: false });
    plot = new uPlot({
      width: place.clientWidth - pad(place), height: tall, series,
      padding: [10, 4, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: true, auto: false, range: (u, min, max) => [min, max] },
        y: { range: (u, min, max) => [0, max > 0 ? max * 1.08 : 1] },
      },
      // A time near the left end is omitted, because it would overlap the numbers of the other axis.
      axes: [
        { ...axis, size: 26, gap: 4, space: 70, values: (u, at) => at.map(s => s - u.scales.x.min < (u.scales.x.max - u.scales.x.min) * 0.02 ? '' : clock(s)) },
        { ...axis, size: 44, gap: 4, space: 40, values: (u, all) => all.map(rate) },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      select: { show: true },
      hooks: { setCursor: [tip], setSelect: [brushed], draw: [marks] },
    }, shown, place);
    plot.setScale('x', { min: d.from, max: d.to });
    const canvas = plot.root.querySelector('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', 'Requests per second by outcome over time: the table below has the numbers');
    place.dataset.points = d.at.length;
    place.dataset.last = d.at.at(-1) || '';
    mark();
  }
  const pad = el => { const s = getComputedStyle(el); return parseFloat(s.paddingLeft) + parseFloat(s.paddingRight); };

  // marks draws events as dashed lines. If there are many, the lines would cover the chart, so it draws only their
  // heads.
  const maxLines = 8;
  function marks(u) {
    if (!data) return;
    const g = u.ctx, b = u.bbox;
    g.save();
    g.strokeStyle = color('accent');
    g.fillStyle = color('accent');
    g.lineWidth = 1.5 * devicePixelRatio;
    const shown = data.marks.filter(m => m.at >= u.scales.x.min && m.at <= u.scales.x.max);
    for (const m of shown) {
      const x = Math.round(u.valToPos(m.at, 'x', true));
      if (shown.length <= maxLines) {
        g.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
        g.beginPath(); g.moveTo(x, b.top); g.lineTo(x, b.top + b.height); g.stroke();
        g.setLineDash([]);
      }
      g.beginPath(); g.moveTo(x - 4 * devicePixelRatio, b.top); g.lineTo(x + 4 * devicePixelRatio, b.top); g.lineTo(x, b.top + 6 * devicePixelRatio); g.fill();
    }
    g.restore();
  }

  // mark shows the selected part of the chart, unless the reader is selecting another.
  function mark() {
    const [from, to] = data.chosen;
    if (document.querySelector('.chart .u-over')?.matches(':active')) return;
    if (!from) { plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false); return; }
    const left = Math.max(0, plot.valToPos(from, 'x')), right = Math.min(plot.over.clientWidth, plot.valToPos(to, 'x'));
    plot.setSelect({ left, width: Math.max(2, right - left), top: 0, height: plot.over.clientHeight }, false);
  }

  function brushed(u) {
    if (u.select.width < 8) return;
    const from = Math.floor(u.posToVal(u.select.left, 'x')), to = Math.ceil(u.posToVal(u.select.left + u.select.width, 'x'));
    const url = new URL(location);
    url.searchParams.set('from', from);
    url.searchParams.set('to', to);
    go(url.pathname + url.search);
  }

  const bubble = document.createElement('div');
  bubble.className = 'chart-tip';
  bubble.hidden = true;
  place.append(bubble);
  function tip(u) {
    const i = u.cursor.idx;
    if (i == null || u.cursor.left < 0 || !data || !data.at.length) { bubble.hidden = true; return; }
    bubble.replaceChildren();
    const when = document.createElement('p');
    when.textContent = exactly(data.at[i]);
    when.title = new Date(data.at[i] * 1000).toISOString();
    const utc = new Date(data.at[i] * 1000);
    when.textContent += ' (' + two(utc.getUTCHours()) + ':' + two(utc.getUTCMinutes()) + ' UTC)';
    bubble.append(when);
    const line = (kind, text, value) => {
      const row = document.createElement('div'), swatch = document.createElement('span'), b = document.createElement('b');
      swatch.className = 'swatch swatch-' + kind;
      b.textContent = value;
      row.append(swatch, text, b);
      bubble.append(row);
    };
    order.forEach((name, j) => { const v = data.rates[j][i]; if (v > 0 || name === 'deny' || name === 'allow') line(name, names[j], rate(v) + '/s'); });
    if (data.before && data.before[i] != null) {
      line('yesterday', 'All, yesterday', rate(data.before[i]) + '/s');
      line('yesterday', 'Denied, yesterday', rate(data.before_refused[i]) + '/s');
    }
    const near = data.marks.filter(m => Math.abs(u.valToPos(m.at, 'x') - u.cursor.left) < 8);
    for (const m of near) {
      const row = document.createElement('div');
      row.className = 'tip-mark';
      row.textContent = exactly(m.at) + ' ' + m.kind + ': ' + m.text;
      bubble.append(row);
    }
    bubble.hidden = false;
    const left = u.over.offsetLeft + u.cursor.left + parseFloat(getComputedStyle(place).paddingLeft);
    const flip = left + bubble.offsetWidth + 24 > place.clientWidth;
    bubble.style.left = Math.max(0, flip ? left - bubble.offsetWidth - 12 : left + 14) + 'px';
    bubble.style.top = '14px';
  }

  function again() {
    if (!plot) return;
    plot.destroy();
    plot = undefined;
    place.append(bubble);
    draw(data);
  }
  addEventListener('themechange', again);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width || !plot) return;
    width = place.clientWidth;
    plot.setSize({ width: width - pad(place), height: innerWidth < 720 ? 200 : 240 });
  }).observe(place);

  open();
})();
