// Draws a report of `divvy simulate --control` from the figures embedded in the page.
// simulate_control_html.cc says what they hold.

const chosen = {policy: 0};

// Columns of a policy's layout.boxes. Times are in slots.
const [GPU, LOW, SIZE, PROFILE, FROM, READY, TO, RETRAINS, TENANT, OPTION, REASON] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

const LENGTH = data.slots * data.slot_s;
const STEP = data.step * data.slot_s;
const time = (slots) => `${figure(slots * data.slot_s)} s`;
const share = (value) => value === null ? '–' : percent(value);
const policy = () => data.policies[chosen.policy];

// An estimate is [mean, standard error or null].
function estimate(value, format) {
  if (value === null) return '–';
  return format(value[0]) + (value[1] === null ? '' : ` ± ${format(value[1])}`);
}
const signed = (value) => `${value > 0 ? '+' : ''}${(value * 100).toFixed(1)} %`;

function cards() {
  const p = policy(), s = p.standing, more = s.against_first;
  const list = [
    ['Goodput', `${figure(s.goodput[0])}/s`, chosen.policy === 0 || more === null ? 'worth of answers in time' :
      `${signed(more[0])} against ${data.policies[0].name}`],
    ['Answered in time', percent(s.in_time), 'of all requests'],
    ['Accuracy', share(s.accuracy), 'of what was answered in time'],
    ['Retrained', figure(s.retrained), 'models, to the end'],
    ['Lost to restarts', percent(s.lost), `of the goodput; ${figure(s.starts)} starts in ${figure(s.changes)} changes`],
  ];
  if (s.gap !== null) list.push(['Proven gap', percent(s.gap), `of a decision to the best; at worst ${percent(s.worst_gap)}`]);
  return `<div class="cards">${list.map(([name, value, why]) => `<div class="card"><div class="name">${esc(name)}</div>` +
    `<div class="figure">${esc(value)}</div><div class="more">${esc(why)}</div></div>`).join('')}</div>`;
}

function comparison() {
  if (data.policies.length < 2) return '';
  const most = Math.max(...data.policies.map((p) => p.standing.goodput[0]), 1e-9);
  const rows = data.policies.map((p, i) => `<span class="${i === chosen.policy ? 'chosen' : ''}" data-tip="${esc(p.what)}">${esc(p.name)}</span>` +
    `<i style="--mark:${colour(i)};width:${(100 * p.standing.goodput[0] / most).toFixed(2)}%"></i>` +
    `<b>${esc(estimate(p.standing.goodput, figure))}/s</b>`);
  return section('Policies compared', 'Goodput: what answers in time are worth a second, each by the accuracy of the model that gave it.',
    `<div class="bars">${rows.join('')}</div>`);
}

// Patterns of the tenants, for all drawings of the page.
function patterns() {
  const stripes = (id, c, ground) => `<pattern id="${id}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
    `<rect width="7" height="7" fill="${c}" fill-opacity="${ground}"/><line x1="0" x2="0" y1="0" y2="7" stroke="${ground === 1 ? '#000000' : c}" ` +
    `stroke-opacity="${ground === 1 ? 0.45 : 0.9}" stroke-width="${ground === 1 ? 5 : 2.5}"/></pattern>`;
  return '<svg width="0" height="0" style="position:absolute;width:0" aria-hidden="true"><defs>' + data.tenants.map((_, i) =>
    stripes(`learns-${i}`, colour(i), 1) + stripes(`starts-${i}`, colour(i), 0.15)).join('') + '</defs></svg>';
}

function boxTip(p, box) {
  const tenant = data.tenants[box[TENANT]];
  const where = p.mig ? `${data.profiles[box[PROFILE]]} at ${box[LOW]}` : `${box[SIZE] * 10} %`;
  const what = box[RETRAINS] ? `retrains (${tenant.options[box[OPTION]]})` : 'serves';
  const begins = box[READY] > box[FROM] ? `\n${box[RETRAINS] ? 'learns' : 'answers'} from ${time(box[READY])} on` : '';
  const why = p.layout.reasons[box[REASON]];
  return `${tenant.name} ${what} on ${where} of GPU ${box[GPU]}\n${time(box[FROM])} to ${time(box[TO])}${begins}${why ? `\n${why}` : ''}`;
}

// One policy's cut over time: a band for each GPU.
function timeline(p) {
  const W = 1180, left = 62, right = 10, gap = 8, foot = 22;
  const unit = (p.layout.gpus > 2 ? 64 : 104) / p.slices, band = unit * p.slices;
  const H = p.layout.gpus * (band + gap) + foot;
  const x = (slot) => left + (W - left - right) * slot / data.slots;
  const y = (gpu, low) => gpu * (band + gap) + low * unit;
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${esc(p.name)}: who has which part of the GPUs over time">`;
  for (let g = 0; g < p.layout.gpus; g++) {
    svg += `<rect class="free" x="${left}" y="${y(g, 0)}" width="${W - left - right}" height="${band}" data-tip="free"/>` +
        `<text x="${left - 8}" y="${y(g, p.slices / 2) + 4}" text-anchor="end">GPU ${g}</text>`;
  }
  for (const box of p.layout.boxes) {
    const rect = (from, to, fill, faint) => `<rect class="cell" x="${x(from).toFixed(1)}" y="${y(box[GPU], box[LOW]).toFixed(1)}" ` +
        `width="${Math.max(0.5, x(to) - x(from)).toFixed(1)}" height="${(box[SIZE] * unit).toFixed(1)}" fill="${fill}"${faint} data-tip="${esc(boxTip(p, box))}"/>`;
    const ready = Math.min(Math.max(box[READY], box[FROM]), box[TO]);
    if (ready > box[FROM]) svg += rect(box[FROM], ready, `url(#starts-${box[TENANT]})`, '');
    if (ready < box[TO]) svg += rect(ready, box[TO], box[RETRAINS] ? `url(#learns-${box[TENANT]})` : colour(box[TENANT]), '');
    const name = data.tenants[box[TENANT]].name;
    if (x(box[TO]) - x(ready) > 7 * name.length + 10 && box[SIZE] * unit >= 12 && !box[RETRAINS]) {
      svg += `<text class="in-cell" x="${(x(ready) + 5).toFixed(1)}" y="${(y(box[GPU], box[LOW] + box[SIZE] / 2) + 4).toFixed(1)}">${esc(name)}</text>`;
    }
  }
  for (let slot = data.window; slot < data.slots; slot += data.window) {
    svg += `<line class="window" x1="${x(slot)}" x2="${x(slot)}" y1="0" y2="${H - foot}"/>`;
  }
  for (const t of ticks(LENGTH, 10)) {
    svg += `<text x="${x(t / data.slot_s)}" y="${H - 4}" text-anchor="middle">${esc(figure(t))}${t === 0 ? '' : ' s'}</text>`;
  }
  const more = data.gpus - p.layout.gpus;
  return `<div class="timeline"><h3>${esc(p.name)}<small>${esc(p.what)}</small></h3>${svg}</svg>` +
    (more > 0 ? `<p class="more">and ${esc(figure(more))} more GPUs</p>` : '') + '</div>';
}

function timelines() {
  const names = data.tenants.map((t, i) => `<span class="box" style="--mark:${colour(i)}">${esc(t.name)}</span>`);
  names.push('<span class="learning">retraining</span>', '<span class="starting">starting</span>');
  return section('Who has which part of the GPUs', `${data.gpu}, seed ${data.first_seed}; over time, top to bottom by memory slice, ` +
    'or by tenths of a GPU under MPS. Broken lines: a window begins, and new data comes. Grey: free.',
    `<div class="legend">${names.join('')}</div>` + data.policies.map(timeline).join(''));
}

// What tipOf needs of the charts on the page.
let charts = [];

// Lines over time. `lines`: [{name, colour, dash, faint, values}], a value for each STEP.
function timeChart({lines, yName, yLeast, yMost, yFormat, wide}) {
  const W = wide ? 1180 : 560, H = wide ? 260 : 230, left = 62, right = 14, top = 10, bottom = 40;
  const low = yLeast || 0, high = yMost > low ? yMost : low + 1;
  const x = (seconds) => left + (W - left - right) * seconds / LENGTH;
  const y = (v) => H - bottom - (H - top - bottom) * (Math.min(v, high) - low) / (high - low);
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${esc(yName)} over time">`;
  for (const t of ticks(high - low, 4).map((v) => v + low)) {
    svg += `<line class="grid-line" x1="${left}" x2="${W - right}" y1="${y(t)}" y2="${y(t)}"/>` +
        `<text x="${left - 8}" y="${y(t) + 4}" text-anchor="end">${esc(yFormat(t))}</text>`;
  }
  for (let slot = data.window; slot < data.slots; slot += data.window) {
    svg += `<line class="window" x1="${x(slot * data.slot_s)}" x2="${x(slot * data.slot_s)}" y1="${top}" y2="${H - bottom}"/>`;
  }
  for (const t of ticks(LENGTH, wide ? 10 : 5)) {
    svg += `<text x="${x(t)}" y="${H - bottom + 17}" text-anchor="middle">${esc(figure(t))}</text>`;
  }
  svg += `<line class="axis" x1="${left}" x2="${W - right}" y1="${H - bottom}" y2="${H - bottom}"/>` +
      `<text x="${(left + W - right) / 2}" y="${H - 6}" text-anchor="middle">seconds</text>` +
      `<text transform="translate(11 ${(top + H - bottom) / 2}) rotate(-90)" text-anchor="middle">${esc(yName)}</text>`;
  for (const line of lines) {
    const path = line.values.map((v, i) => `${i ? 'L' : 'M'}${x(Math.min((i + 0.5) * STEP, LENGTH)).toFixed(1)} ${y(v).toFixed(1)}`).join('');
    svg += `<path d="${path}" fill="none" stroke="${line.colour}" stroke-width="${line.width || 1.8}" stroke-dasharray="${line.dash || ''}" ` +
        `stroke-linejoin="round" class="${line.faint ? 'faint' : ''}"/>`;
  }
  svg += `<rect x="${left}" y="${top}" width="${W - left - right}" height="${H - top - bottom}" fill="transparent" data-chart="${charts.length}"/>`;
  charts.push({lines, yFormat});
  return svg + '</svg>' + legend(lines);
}

// Means over about a hundred and fifty points: single seconds jump.
function smooth(values) {
  const width = Math.max(1, Math.round(values.length / 150));
  return values.map((_, i) => {
    const part = values.slice(Math.max(0, i - width), i + width + 1);
    return sum(part) / part.length;
  });
}

const mostOf = (lines) => Math.max(...lines.flatMap((l) => l.values), 1e-9);
const leastOf = (lines) => Math.min(...lines.flatMap((l) => l.values));

function policyLines(values) {
  return data.policies.map((p, i) => ({name: p.name, colour: colour(i), dash: dash(i), width: i === chosen.policy ? 2.6 : 1.6,
    values: values(p.series)}));
}

function policyCharts() {
  const goodput = policyLines((s) => smooth(s.goodput)), lost = policyLines((s) => s.lost);
  const least = leastOf(goodput), most = mostOf(goodput);
  const unit = ticks(most, 5)[1], low = Math.floor(least / unit) * unit;
  return section('Goodput over time', `Worth of answers in time a second, on seed ${data.first_seed}; a moving mean.`,
    timeChart({lines: goodput, yName: 'worth a second', yLeast: low, yMost: most * 1.04, yFormat: figure, wide: true})) +
    section('Goodput lost to restarts, so far', 'What instances could have answered while they started.',
      timeChart({lines: lost, yName: 'worth in all', yMost: mostOf(lost) * 1.06, yFormat: figure, wide: true}));
}

function tenantCharts() {
  const p = policy();
  const parts = data.tenants.map((t, i) => {
    const s = p.series.tenants[i];
    const lines = [
      {name: 'load', colour: 'var(--ink)', width: 1.4, values: t.load},
      {name: 'capacity', colour: colour(i), dash: '6 4', width: 2, values: s.capacity},
      {name: 'answered in time', colour: colour(i), width: 2.2, values: s.in_time}];
    return section(t.name, `Load and capacity under ${p.name}, in requests a second. ${percent(p.standing.tenants[i][0])} in time.`,
      timeChart({lines, yName: 'requests/s', yMost: Math.min(mostOf(lines), mostOf([lines[0]]) * 2) * 1.06, yFormat: figure}));
  });
  const learners = data.tenants.map((t, i) => ({name: t.name, colour: colour(i), dash: dash(i), values: p.series.tenants[i].accuracy}))
      .filter((l) => l.values !== null);
  if (learners.length > 0) {
    const low = Math.max(0, Math.floor(leastOf(learners) * 10 - 0.2) / 10), high = Math.min(1, Math.ceil(mostOf(learners) * 10 + 0.2) / 10);
    parts.push(section('Accuracy', `Of the models that serve, under ${p.name}.`,
      timeChart({lines: learners, yName: 'accuracy', yLeast: low, yMost: high, yFormat: (v) => `${figure(v * 100)} %`})));
  }
  return `<div class="grid">${parts.join('')}</div>`;
}

function table(kind, columns, rows) {
  const head = columns.map((c) => `<th>${esc(c)}</th>`).join('');
  const body = rows.map(([marked, ...cells]) => `<tr class="${marked ? 'chosen' : ''}">${cells.map((c) => `<td>${esc(c)}</td>`).join('')}</tr>`).join('');
  return `<div class="scroll"><table class="${kind}"><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}

function tables() {
  const first = data.policies[0].name, oracle = data.policies.some((p) => p.standing.of_oracle !== null);
  const columns = ['policy', 'goodput/s', `against ${first}`, ...(oracle ? ['of oracle'] : []), 'in time', 'accuracy', 'retrained',
    'changes', 'starts', 'lost', 'gap', 'worst gap', 'not done'];
  const rows = data.policies.map((p, i) => {
    const s = p.standing;
    return [i === chosen.policy, p.name, estimate(s.goodput, figure), i === 0 ? '–' : estimate(s.against_first, signed),
      ...(oracle ? [estimate(s.of_oracle, percent)] : []), percent(s.in_time), share(s.accuracy), figure(s.retrained),
      figure(s.changes), figure(s.starts), percent(s.lost), share(s.gap), share(s.worst_gap), figure(s.not_done)];
  });
  const byTenant = data.tenants.flatMap((t, m) => data.policies.map((p, i) => [i === chosen.policy, t.name, p.name,
    percent(p.standing.tenants[m][0]), share(p.standing.tenants[m][1])]));
  const why = data.seeds > 1 ? `Means of ${data.seeds} seeds, ± the standard error.` : `Seed ${data.first_seed}.`;
  return section('All policies', why, table('', columns, rows)) +
    section('By model', why, table('by-tenant', ['model', 'policy', 'in time', 'accuracy'], byTenant));
}

function notes() {
  const items = [...data.rejected.map((r) => `${r.policy}: not run. ${r.why}`),
    ...data.policies.flatMap((p) => p.log.map((line) => `${p.name}, ${line}`)), ...data.notes];
  if (items.length === 0) return '';
  return section('Notes', '', `<ul>${items.map((n) => `<li>${esc(n)}</li>`).join('')}</ul>`);
}

function draw() {
  charts = [];
  document.getElementById('page').innerHTML = patterns() + cards() + comparison() + timelines() + policyCharts() +
    tenantCharts() + tables() + notes();
}

function tipOf(event) {
  const area = event.target.closest('[data-chart]');
  if (area) {
    const chart = charts[area.dataset.chart], box = area.getBoundingClientRect();
    const seconds = Math.min(Math.max(0, (event.clientX - box.left) / box.width), 0.9999) * LENGTH;
    return `${figure(seconds)} s\n` + chart.lines.map((l) => {
      const value = l.values[Math.min(Math.floor(seconds / STEP), l.values.length - 1)];
      return `${l.name}: ${chart.yFormat(value)}`;
    }).join('\n');
  }
  const holder = event.target.closest('[data-tip]');
  return holder ? holder.dataset.tip : '';
}

function start() {
  document.getElementById('about').textContent = data.about;
  document.getElementById('choices').innerHTML =
    `<label>Policy<select data-choice="policy">${option(data.policies.map((p) => p.name), chosen.policy)}</select></label>`;
  document.addEventListener('change', (event) => {
    if (event.target.dataset.choice !== 'policy') return;
    chosen.policy = Number(event.target.value);
    draw();
  });
  draw();
}

start();
