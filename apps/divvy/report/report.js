// Draws a report of `divvy simulate` from the figures embedded in the page. html_report.cc
// says what they hold.

const chosen = {pair: data.best, model: 0, column: null, down: true};

// Columns of data.rows and data.curve.
const [PAIR, MODEL, FACTOR, RATE, OFFERED, P50, P95, P99, ATTAINMENT, GOODPUT, SHED, BUSY, BOUNDED] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

const pairName = (pair) => `${data.pairs[pair].plan} · ${data.pairs[pair].route}`;
const latency = (ms) => ms === null ? 'refused' : `${figure(ms)} ms`;

// A chart of lines. `lines`: [{name, colour, dash, faint, points: [[x, y or null, tip]]}];
// a null breaks the line. `marks` are lines across at a y or an x.
function lineChart({lines, xName, yName, yMost, yFormat, marks}) {
  const W = 560, H = 300, left = 68, right = 16, top = 14, bottom = 44;
  const xs = lines.flatMap((l) => l.points.map((p) => p[0]));
  const xMost = Math.max(...xs, 1e-9) * 1.02;
  const x = (v) => left + (W - left - right) * v / xMost;
  const y = (v) => H - bottom - (H - top - bottom) * Math.min(v / yMost, 1.03);
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${esc(yName)} against ${esc(xName)}">`;
  for (const t of ticks(yMost, 5)) {
    svg += `<line class="grid-line" x1="${left}" x2="${W - right}" y1="${y(t)}" y2="${y(t)}"/>` +
        `<text x="${left - 8}" y="${y(t) + 4}" text-anchor="end">${esc(yFormat(t))}</text>`;
  }
  for (const t of ticks(xMost, 6)) {
    svg += `<text x="${x(t)}" y="${H - bottom + 18}" text-anchor="middle">${esc(figure(t))}</text>` +
        `<line class="axis" x1="${x(t)}" x2="${x(t)}" y1="${H - bottom}" y2="${H - bottom + 4}"/>`;
  }
  svg += `<line class="axis" x1="${left}" x2="${W - right}" y1="${H - bottom}" y2="${H - bottom}"/>` +
      `<text x="${(left + W - right) / 2}" y="${H - 8}" text-anchor="middle">${esc(xName)}</text>` +
      `<text transform="translate(12 ${(top + H - bottom) / 2}) rotate(-90)" text-anchor="middle">${esc(yName)}</text>`;
  for (const mark of marks || []) {
    if (mark.y !== undefined && mark.y <= yMost) {
      svg += `<line class="slo" x1="${left}" x2="${W - right}" y1="${y(mark.y)}" y2="${y(mark.y)}"/>` +
          `<text class="slo-name" x="${left + 6}" y="${y(mark.y) + 15}">${esc(mark.name)}</text>`;
    }
    if (mark.x !== undefined && mark.x <= xMost) {
      svg += `<line class="offered" x1="${x(mark.x)}" x2="${x(mark.x)}" y1="${top}" y2="${H - bottom}"/>` +
          `<text x="${x(mark.x) + 4}" y="${H - bottom - 6}">${esc(mark.name)}</text>`;
    }
  }
  for (const line of lines) svg += drawLine(line, x, y);
  return svg + '</svg>' + legend(lines);
}

function drawLine(line, x, y) {
  let path = '', dots = '', open = false;
  for (const [px, py, tip] of line.points) {
    if (py === null) { open = false; continue; }
    path += `${open ? 'L' : 'M'}${x(px).toFixed(1)} ${y(py).toFixed(1)}`;
    open = true;
    dots += `<circle cx="${x(px).toFixed(1)}" cy="${y(py).toFixed(1)}" r="3" fill="${line.colour}"/>` +
        `<circle cx="${x(px).toFixed(1)}" cy="${y(py).toFixed(1)}" r="10" fill="transparent" data-tip="${esc(tip)}"/>`;
  }
  return `<g class="${line.faint ? 'faint' : ''}"><path d="${path}" fill="none" stroke="${line.colour}" ` +
      `stroke-width="2.2" stroke-dasharray="${line.dash || ''}" stroke-linejoin="round"/>${dots}</g>`;
}

// The rows of a pair at the load nearest to what was asked for.
function typical(pair) {
  const rows = data.rows.filter((r) => r[PAIR] === pair);
  const nearest = Math.min(...rows.map((r) => Math.abs(Math.log(r[FACTOR]))));
  return rows.filter((r) => Math.abs(Math.log(r[FACTOR])) <= nearest + 1e-9);
}

const curveOf = (pair, model) => data.curve.filter((r) => r[PAIR] === pair && r[MODEL] === model)
    .sort((a, b) => a[RATE] - b[RATE]);

function cards() {
  const rows = typical(chosen.pair), pair = data.pairs[chosen.pair];
  const share = sum(rows.map((r) => r[ATTAINMENT] * r[OFFERED])) / Math.max(1, sum(rows.map((r) => r[OFFERED])));
  const worst = rows.reduce((a, b) => b[ATTAINMENT] < a[ATTAINMENT] ? b : a);
  const offered = sum(rows.map((r) => r[RATE]));
  const shed = sum(rows.map((r) => r[SHED]));
  const list = [
    ['Answered in time', percent(share), data.models.length > 1 ?
      `least: ${data.models[worst[MODEL]].name}, ${percent(worst[ATTAINMENT])}` : 'share of all requests',
      worst[ATTAINMENT] >= 0.95 ? 'good' : 'bad'],
    ['Goodput', `${figure(sum(rows.map((r) => r[GOODPUT])))}/s`, `of ${figure(offered)} requests a second offered`, ''],
    ['GPUs', String(pair.gpus), data.gpu, ''],
    ['Refused', figure(shed), `of ${figure(sum(rows.map((r) => r[OFFERED])))} requests`, ''],
  ];
  if (pair.bounded !== null) {
    list.splice(2, 0, ['Carries', `${figure(pair.bounded)} ×`,
      'this load with 95 % of each model in time', pair.bounded >= 1 ? 'good' : 'bad']);
  }
  return '<div class="cards">' + list.map(([name, value, more, mood]) =>
    `<div class="card"><div class="name">${esc(name)}</div><div class="figure ${mood}">${esc(value)}</div>` +
    `<div class="more">${esc(more)}</div></div>`).join('') + '</div>';
}

function comparison() {
  if (data.pairs.length < 2) return '';
  const bounded = data.pairs.every((p) => p.bounded !== null);
  const value = (pair) => bounded ? data.pairs[pair].bounded : sum(typical(pair).map((r) => r[GOODPUT]));
  const order = data.pairs.map((_, i) => i).sort((a, b) => value(b) - value(a));
  const most = Math.max(...order.map(value), 1e-9);
  const rows = order.map((i) => `<span class="${i === chosen.pair ? 'chosen' : ''}">${esc(pairName(i))}</span>` +
    `<i style="--mark:${colour(i)};width:${(100 * value(i) / most).toFixed(2)}%"></i>` +
    `<b>${figure(value(i))}${bounded ? ' ×' : '/s'} <span class="why">on ${data.pairs[i].gpus} GPU${data.pairs[i].gpus === 1 ? '' : 's'}</span></b>`);
  return section('Plans and routes compared', bounded ?
    'How many times the load each carries with 95 % of every model\'s requests in time.' :
    'Requests a second that each answers in time.', `<div class="bars">${rows.join('')}</div>`);
}

function latencyChart() {
  const model = data.models[chosen.model], rows = curveOf(chosen.pair, chosen.model);
  const highest = Math.max(...rows.map((r) => r[P99] || 0), model.slo_ms);
  const lines = [['p50', P50, 2], ['p95', P95, 0], ['p99', P99, 1]].map(([name, column, c]) => ({
    name, colour: colour(c),
    points: rows.map((r) => [r[RATE], r[column], `${name} ${latency(r[column])}\n${figure(r[RATE])} requests/s, ` +
      `${percent(r[ATTAINMENT])} in time\n${figure(r[SHED])} refused`]),
  }));
  return section(`Latency of ${model.name}`,
    `Under ${pairName(chosen.pair)}. A line ends where so many requests are refused that there is no such latency.`,
    lineChart({lines, xName: 'requests a second', yName: 'latency, ms',
      yMost: Math.min(highest * 1.06, model.slo_ms * 2.5), yFormat: figure,
      marks: [{y: model.slo_ms, name: `SLO ${figure(model.slo_ms)} ms`}, {x: model.rate, name: 'offered'}]}));
}

function pairLines(column, format) {
  return data.pairs.map((_, i) => ({
    name: pairName(i), colour: colour(i), dash: dash(i), faint: data.pairs.length > 1 && i !== chosen.pair,
    points: curveOf(i, chosen.model).map((r) => [r[RATE], r[column],
      `${pairName(i)}\n${format(r[column])} at ${figure(r[RATE])} requests/s\np95 ${latency(r[P95])}`]),
  }));
}

function loadCharts() {
  const model = data.models[chosen.model];
  const attainment = pairLines(ATTAINMENT, percent), goodput = pairLines(GOODPUT, (v) => `${figure(v)}/s`);
  const most = Math.max(...goodput.flatMap((l) => l.points.map((p) => p[1])), 1e-9);
  const offered = {x: model.rate, name: 'offered'};
  return section(`Answers of ${model.name} in time`, 'Share of its requests, against the load.',
    lineChart({lines: attainment, xName: 'requests a second', yName: 'in time', yMost: 1.04,
      yFormat: (t) => `${Math.round(t * 100)} %`, marks: [{y: 0.95, name: '95 %'}, offered]})) +
    section(`Goodput of ${model.name}`, 'Requests a second answered in time, against the load.',
      lineChart({lines: goodput, xName: 'requests a second', yName: 'in time a second', yMost: most * 1.06,
        yFormat: figure, marks: [offered]}));
}

function mixChart() {
  const mix = data.mix.find((m) => m.pair === chosen.pair && m.model === chosen.model);
  if (!mix) return '';
  const W = 560, H = 300, left = 68, right = 16, top = 14, bottom = 44, n = mix.labels.length;
  const most = Math.max(...mix.offered, ...mix.executed) * 1.06;
  const y = (v) => H - bottom - (H - top - bottom) * v / most, step = (W - left - right) / n;
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="batch sizes">`;
  for (const t of ticks(most, 5)) {
    svg += `<line class="grid-line" x1="${left}" x2="${W - right}" y1="${y(t)}" y2="${y(t)}"/>` +
        `<text x="${left - 8}" y="${y(t) + 4}" text-anchor="end">${esc(figure(t * 100))} %</text>`;
  }
  const every = Math.ceil(n / 12);
  mix.labels.forEach((label, i) => {
    const tip = `${label} item${label === '1' ? '' : 's'}\n${percent(mix.offered[i])} of the requests\n` +
        `${percent(mix.executed[i])} of the batches`;
    [[mix.offered[i], 2, 0.08], [mix.executed[i], 0, 0.5]].forEach(([v, c, shift]) => {
      svg += `<rect x="${(left + step * (i + shift)).toFixed(1)}" y="${y(v).toFixed(1)}" width="${(step * 0.42).toFixed(1)}" ` +
          `height="${Math.max(0, H - bottom - y(v)).toFixed(1)}" rx="1.5" fill="${colour(c)}"/>`;
    });
    svg += `<rect x="${left + step * i}" y="${top}" width="${step}" height="${H - top - bottom}" fill="transparent" data-tip="${esc(tip)}"/>`;
    if (i % every === 0) {
      svg += `<text x="${left + step * (i + 0.5)}" y="${H - bottom + 18}" text-anchor="middle">${esc(label)}</text>`;
    }
  });
  svg += `<text x="${(left + W - right) / 2}" y="${H - 8}" text-anchor="middle">items</text></svg>`;
  return section(`Batch sizes of ${data.models[chosen.model].name}`,
    'What requests bring and what partitions run, once requests that wait are put together.',
    svg + legend([{name: 'requests', colour: colour(2)}, {name: 'batches that ran', colour: colour(0)}]));
}

function cutSection() {
  const cut = data.cuts[data.pairs[chosen.pair].cut];
  let body = '';
  for (const stage of cut.stages) {
    if (cut.stages.length > 1) {
      body += `<p class="why">${stage.from_s === 0 ? 'At first' : `From ${esc(figure(stage.from_s))} s on`}</p>`;
    }
    body += '<div class="cut">' + stage.gpus.map((gpu) => `<span>${esc(gpu.name)}</span>` +
      `<div class="strip" style="grid-template-columns:repeat(${gpu.slices},1fr)">` +
      gpu.instances.map(instanceBox).join('') + '</div>').join('') + '</div>';
    if (stage.more > 0) body += `<p class="why">and ${esc(figure(stage.more))} more GPUs</p>`;
  }
  const names = data.models.map((m, i) => `<span class="box" style="--mark:${colour(i)}">${esc(m.name)}</span>`);
  if (cut.jobs) names.push('<span class="box job">training job</span>');
  return section(`The cut of ${cut.plan}`, `${data.gpu}; a column is a memory slice.`,
    body + `<div class="legend">${names.join('')}</div>`);
}

function instanceBox(box) {
  const place = `grid-column:${box.start + 1}/span ${box.size}`;
  const tip = `${box.profile} at ${box.start}\n${box.runs || 'nothing runs here'}${box.note ? `\n${box.note}` : ''}`;
  return `<div class="instance ${box.kind}" style="${place};--mark:${box.model === null ? 'var(--hatch)' : colour(box.model)}" ` +
      `data-tip="${esc(tip)}">${esc(box.runs || 'idle')}<small>${esc(box.profile)}</small></div>`;
}

function timelineSection() {
  const rows = data.partitions.filter((p) => p.pair === chosen.pair);
  if (rows.length === 0) return '';
  const longest = endOf(rows) / 1000;
  const body = rows.map((r) => {
    const from = r.from_s > 0 ? ` <em>from ${esc(figure(r.from_s))} s</em>` : '';
    const label = `<span class="label"><em>${esc(r.gpu)} ${esc(r.profile)}${r.start === null ? '' : ` at ${r.start}`}</em> ` +
        `${esc(r.runs || 'idle')}${from}</span>`;
    const strip = r.kind === 'model' ? `<canvas data-row="${data.partitions.indexOf(r)}"></canvas>` :
        `<div class="${r.kind === 'job' ? 'job-strip' : ''}" data-tip="${esc(r.kind === 'job' ? `busy with ${r.runs}` : 'idle')}"></div>`;
    return `${label}${strip}<span class="share">${esc(percent(r.util))}</span>`;
  }).join('');
  const times = [0, 0.25, 0.5, 0.75, 1].map((s) => `<span>${esc(figure(s * longest))} s</span>`).join('');
  const more = data.pairs[chosen.pair].partitions_left_out;
  return section('What each partition did', `Share of its processes that were busy, over time; under ${pairName(chosen.pair)}.`,
    `<div class="heat">${body}<span></span><div class="times">${times}</div><span></span></div>` +
    (more > 0 ? `<p class="why">and ${esc(figure(more))} more partitions</p>` : ''));
}

// "#rrggbb" as three numbers.
const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

function paintTimelines() {
  const style = getComputedStyle(document.documentElement);
  const low = channels(style.getPropertyValue('--heat-low').trim());
  const high = channels(style.getPropertyValue('--heat-high').trim());
  const end = endOf(data.partitions.filter((p) => p.pair === chosen.pair));
  for (const canvas of document.querySelectorAll('canvas[data-row]')) {
    const row = data.partitions[canvas.dataset.row];
    canvas.width = 768;
    canvas.height = 1;
    const pen = canvas.getContext('2d');
    for (let i = 0; i < canvas.width; i++) {
      const share = busyAt(row, (i + 0.5) / canvas.width * end);
      pen.fillStyle = `rgb(${low.map((c, k) => Math.round(c + (high[k] - c) * share)).join(',')})`;
      pen.fillRect(i, 0, 1, 1);
    }
  }
}

// Partitions have slots of different lengths: those that rest early have short ones.
const endOf = (rows) => Math.max(...rows.map((r) => r.slot_ms * r.busy.length), 1e-9);
const busyAt = (row, ms) => parseInt(row.busy[Math.floor(ms / row.slot_ms)] || '0', 36) / 35;

const COLUMNS = [
  ['plan', (r) => data.pairs[r[PAIR]].plan], ['route', (r) => data.pairs[r[PAIR]].route],
  ['model', (r) => data.models[r[MODEL]].name], ['GPUs', (r) => data.pairs[r[PAIR]].gpus],
  ['load', (r) => r[FACTOR], (v) => `${figure(v)} ×`], ['rate/s', (r) => r[RATE], figure],
  ['p50 ms', (r) => r[P50], figure], ['p95 ms', (r) => r[P95], figure], ['p99 ms', (r) => r[P99], figure],
  ['SLO ms', (r) => data.models[r[MODEL]].slo_ms, figure], ['in time', (r) => r[ATTAINMENT], percent],
  ['goodput/s', (r) => r[GOODPUT], figure], ['refused', (r) => r[SHED], figure],
  ['busy', (r) => r[BUSY], percent], ['bounded/s', (r) => r[BOUNDED], figure],
];

function tableSection() {
  const rows = [...data.rows];
  if (chosen.column !== null) {
    const key = COLUMNS[chosen.column][1], sign = chosen.down ? -1 : 1;
    // What was refused is the longest of all latencies.
    const value = (r) => key(r) === null ? Infinity : key(r);
    rows.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  }
  const head = COLUMNS.map(([name], i) => `<th data-column="${i}">${esc(name)}` +
    `${chosen.column === i ? (chosen.down ? ' ↓' : ' ↑') : ''}</th>`).join('');
  const body = rows.map((r) => `<tr class="${r[PAIR] === chosen.pair ? 'chosen' : ''}">` +
    COLUMNS.map(([, value, format]) => `<td>${esc(format ? format(value(r)) : value(r))}</td>`).join('') + '</tr>').join('');
  return section('All runs', 'A click on a column sorts by it. A dash is a latency that too many refused requests leave without a value.',
    `<div class="scroll"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`);
}

function notesSection() {
  const items = [...data.rejected.map((r) => `${r.plan}: no plan. ${r.why}`), ...data.notes];
  if (items.length === 0) return '';
  return section('Notes', '', `<ul>${items.map((n) => `<li>${esc(n)}</li>`).join('')}</ul>`);
}

function draw() {
  document.getElementById('page').innerHTML = cards() + comparison() +
    `<div class="grid">${latencyChart()}${loadCharts()}${mixChart()}</div>` +
    cutSection() + timelineSection() + tableSection() + notesSection();
  paintTimelines();
}

function start() {
  document.getElementById('about').textContent = data.about;
  document.getElementById('choices').innerHTML =
    `<label>Plan and route<select data-choice="pair">${option(data.pairs.map((_, i) => pairName(i)), chosen.pair)}</select></label>` +
    `<label>Model<select data-choice="model">${option(data.models.map((m) => m.name), chosen.model)}</select></label>`;
  document.addEventListener('change', (event) => {
    const {choice} = event.target.dataset;
    if (choice) { chosen[choice] = Number(event.target.value); draw(); }
  });
  document.addEventListener('click', (event) => {
    const head = event.target.closest('th[data-column]');
    if (!head) return;
    const column = Number(head.dataset.column);
    chosen.down = chosen.column === column ? !chosen.down : true;
    chosen.column = column;
    draw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
}

function tipOf(event) {
  const canvas = event.target.closest('canvas[data-row]');
  if (canvas) {
    const row = data.partitions[canvas.dataset.row], area = canvas.getBoundingClientRect();
    const ms = (event.clientX - area.left) / area.width * endOf(data.partitions.filter((p) => p.pair === chosen.pair));
    return `${row.runs} on ${row.profile}\nbusy ${Math.round(busyAt(row, ms) * 100)} % at ${figure(ms / 1000)} s\n` +
        `${figure(row.requests)} requests in ${figure(row.batches)} batches`;
  }
  const holder = event.target.closest('[data-tip]');
  return holder ? holder.dataset.tip : '';
}

start();
