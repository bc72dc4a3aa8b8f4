// Draws a report of `divvy bench` from the figures embedded in the page. bench_page.cc says what
// they hold.

let chosen = 0;

const tipOf = (event) => {
  const marked = event.target.closest('[data-tip]');
  return marked ? marked.dataset.tip : '';
};

// `lines`: [{name, colour, points: [[x, y or null, tip]]}]; a null breaks a line.
function chart({lines, xName, yName, xMost, yMost, yFormat, slo, upright}) {
  const W = 560, H = 300, left = 68, right = 16, top = 14, bottom = 44;
  const x = (v) => left + (W - left - right) * Math.min(v / xMost, 1.02);
  const y = (v) => H - bottom - (H - top - bottom) * Math.min(v / yMost, 1.03);
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${esc(yName)} against ${esc(xName)}">`;
  for (const t of ticks(yMost, 5)) {
    svg += `<line class="grid-line" x1="${left}" x2="${W - right}" y1="${y(t)}" y2="${y(t)}"/>` +
        `<text x="${left - 8}" y="${y(t) + 4}" text-anchor="end">${esc(yFormat(t))}</text>`;
  }
  for (const t of ticks(xMost, 6)) {
    svg += `<text x="${x(t)}" y="${H - bottom + 18}" text-anchor="middle">${esc(figure(t))}</text>`;
  }
  svg += `<line class="axis" x1="${left}" x2="${W - right}" y1="${H - bottom}" y2="${H - bottom}"/>` +
      `<text x="${(left + W - right) / 2}" y="${H - 8}" text-anchor="middle">${esc(xName)}</text>` +
      `<text transform="translate(12 ${(top + H - bottom) / 2}) rotate(-90)" text-anchor="middle">${esc(yName)}</text>`;
  if (slo !== null && upright && slo <= xMost) {
    svg += `<line class="slo" x1="${x(slo)}" x2="${x(slo)}" y1="${top}" y2="${H - bottom}"/>` +
        `<text class="slo-name" x="${x(slo) + (slo > xMost / 2 ? -4 : 4)}" y="${H - bottom - 6}" ` +
        `text-anchor="${slo > xMost / 2 ? 'end' : 'start'}">SLO ${esc(figure(slo))} ms</text>`;
  } else if (slo !== null && !upright && slo <= yMost) {
    svg += `<line class="slo" x1="${left}" x2="${W - right}" y1="${y(slo)}" y2="${y(slo)}"/>` +
        `<text class="slo-name" x="${left + 6}" y="${y(slo) - 5}">SLO ${esc(figure(slo))} ms</text>`;
  }
  for (const line of lines) {
    let path = '', spots = '', open = false;
    for (const [px, py, tip] of line.points) {
      if (py === null) { open = false; continue; }
      path += `${open ? 'L' : 'M'}${x(px).toFixed(1)} ${y(py).toFixed(1)}`;
      open = true;
      spots += `<circle cx="${x(px).toFixed(1)}" cy="${y(py).toFixed(1)}" r="6" fill="transparent" data-tip="${esc(tip)}"/>`;
    }
    svg += `<path d="${path}" fill="none" stroke="${line.colour}" stroke-width="2" stroke-linejoin="round"/>${spots}`;
  }
  return svg + '</svg>' + legend(lines);
}

function cards(model) {
  const share = model.attainment;
  const list = [
    ['Answered', figure(model.answered), `of ${figure(model.sent)} requests`, ''],
    ['Throughput', `${figure(model.throughput)}/s`, 'answers a second', ''],
    ['Latency', `${figure(model.p50)} ms`, `p99 ${figure(model.p99)} ms`, ''],
    ['Refused', figure(model.refused), `${figure(model.failed)} failed`, model.failed > 0 ? 'bad' : ''],
  ];
  if (share !== null) {
    list.unshift(['Answered in time', percent(share), `${figure(model.goodput)}/s within ${figure(model.slo_ms)} ms`,
      share >= 0.99 ? 'good' : 'bad']);
  }
  return '<div class="cards">' + list.map(([name, value, more, mood]) =>
    `<div class="card"><div class="name">${esc(name)}</div><div class="figure ${mood}">${esc(value)}</div>` +
    `<div class="more">${esc(more)}</div></div>`).join('') + '</div>';
}

function overTime(model) {
  const rows = model.over_time;
  const most = Math.max(...rows.map((r) => r[3] || 0), model.slo_ms || 0, 1e-9);
  const lines = [['p50', 1, 2], ['p99', 2, 0], ['max', 3, 1]].map(([name, column, c]) => ({
    name, colour: colour(c),
    points: rows.map((r) => [r[0], r[column], `${name} ${figure(r[column])} ms at ${figure(r[0])} s\n` +
      `${figure(r[4])} refused, ${figure(r[5])} failed`]),
  }));
  return section('Latency over time', 'By when requests were due; a gap is a stretch in which none was answered.',
    chart({lines, xName: 'seconds', yName: 'latency, ms', xMost: rows[rows.length - 1][0] * 1.02,
      yMost: most * 1.05, yFormat: figure, slo: model.slo_ms, upright: false}));
}

function distribution(model) {
  const points = model.distribution;
  if (points.length === 0) return '';
  const most = Math.max(points[points.length - 1][0], model.slo_ms || 0) * 1.03;
  const lines = [{name: 'answered within', colour: colour(0),
    points: points.map(([ms, share]) => [ms, share, `${percent(share)} within ${figure(ms)} ms`])}];
  return section('How latencies are distributed', 'Share of all requests that were sent, refused and failed ones among them.',
    chart({lines, xName: 'latency, ms', yName: 'share', xMost: most, yMost: 1,
      yFormat: (v) => `${figure(v * 100)} %`, slo: model.slo_ms, upright: true}));
}

function draw() {
  const model = data.models[chosen];
  document.getElementById('page').innerHTML =
      cards(model) + `<div class="grid">${overTime(model)}${distribution(model)}</div>`;
}

document.getElementById('about').textContent =
    `${data.about}; ${figure(data.elapsed_s)} s, seed ${data.seed}`;
if (data.models.length > 1) {
  document.getElementById('choices').innerHTML =
      `<label>Model<select id="model">${option(data.models.map((m) => m.name), chosen)}</select></label>`;
  document.getElementById('model').addEventListener('change', (event) => {
    chosen = Number(event.target.value);
    draw();
  });
}
draw();
