// Draws a report of `divvy collocate` from the figures embedded in the page. collocate_report.cc
// says what they hold.

const tipOf = (event) => {
  const marked = event.target.closest('[data-tip]');
  return marked ? marked.dataset.tip : '';
};

const [FROM, TO, BUSY, ACTIVE, MEMORY, POWER] = [0, 1, 2, 3, 4, 5];
const seconds = (value) => value === null ? '–' : `${figure(value)} s`;
const share = (value) => value === null ? '–' : percent(value);

function table(head, rows) {
  const cells = (row, tag) => row.map((c) => `<${tag}>${esc(c)}</${tag}>`).join('');
  return `<div class="scroll"><table><thead><tr>${cells(head, 'th')}</tr></thead><tbody>` +
      rows.map((r) => `<tr>${cells(r, 'td')}</tr>`).join('') + '</tbody></table></div>';
}

function alone() {
  if (data.alone.length === 0) return '';
  return section('Alone', 'Each job by itself on the GPU.', table(
      ['Job', 'Seconds', 'Steps/s', 'Latency', 'GPU busy', 'SM active', 'GPU memory', 'Power', 'CPU'],
      data.alone.map(({job, figures, gpu}) => [job, seconds(figures.seconds), figure(figures.steps_per_s),
        figures.latency_ms === null ? '–' : `${figure(figures.latency_ms)} ms`, share(gpu.busy), share(gpu.sm_active),
        gpu.memory_mib === null ? '–' : `${figure(gpu.memory_mib / 1024)} GiB`,
        gpu.power_w === null ? '–' : `${figure(gpu.power_w)} W`, seconds(figures.cpu_s)])));
}

// Bars of the jobs' speeds, one on the other: their whole length is the work that the GPU does.
function workChart(sets) {
  const W = 720, row = 30, left = 150, right = 60, top = 8, bottom = 34;
  const H = top + bottom + row * sets.length;
  const most = Math.max(1, ...sets.map((s) => sum(s.jobs.map((j) => j.speed || 0)))) * 1.05;
  const x = (v) => left + (W - left - right) * v / most;
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="work done together">`;
  for (const t of ticks(most, 6)) {
    svg += `<line class="grid-line" x1="${x(t)}" x2="${x(t)}" y1="${top}" y2="${H - bottom}"/>` +
        `<text x="${x(t)}" y="${H - bottom + 18}" text-anchor="middle">${esc(figure(t))}</text>`;
  }
  sets.forEach((set, i) => {
    let at = 0;
    const y = top + row * i;
    svg += `<text x="${left - 8}" y="${y + row / 2 + 4}" text-anchor="end">${esc(set.mode)}</text>`;
    set.jobs.forEach((job, k) => {
      const speed = job.speed || 0;
      svg += `<rect x="${x(at)}" y="${y + 5}" width="${Math.max(0, x(at + speed) - x(at))}" height="${row - 10}" ` +
          `fill="${colour(k)}" data-tip="${esc(`${job.job}: ${figure(speed)} of its speed alone`)}"/>`;
      at += speed;
    });
    svg += `<text x="${x(at) + 6}" y="${y + row / 2 + 4}">${esc(figure(at))}</text>`;
  });
  svg += `<line class="axis" x1="${x(1)}" x2="${x(1)}" y1="${top}" y2="${H - bottom}"/></svg>`;
  return svg + legend(sets[0].jobs.map((job, k) => ({name: job.job, colour: colour(k)})));
}

const membersOf = (set) => set.jobs.map((j) => j.job).join(' + ');

function adviceOn(members) {
  const advice = data.advice.find((a) => a.jobs.join(' + ') === members);
  return advice ? [` Advice from the runs alone: ${advice.mode}. ${advice.reason}`, ...advice.notes].join(' ') : '';
}

// On jobs that no set of the page has.
function moreAdvice() {
  const shown = new Set(data.together.map(membersOf));
  return data.advice.map((a) => a.jobs.join(' + ')).filter((members) => !shown.has(members))
      .map((members) => section(members, adviceOn(members), '')).join('');
}

function together() {
  const groups = new Map();
  for (const set of data.together) {
    const key = membersOf(set);
    groups.set(key, [...(groups.get(key) || []), set]);
  }
  return [...groups].map(([members, sets]) => {
    const said = adviceOn(members);
    return section(members,
      'Sum of the jobs’ speeds, each over its speed alone: the line at 1 is one job at a time.' + said, workChart(sets) +
      table(['How', ...sets[0].jobs.flatMap((j) => [j.job, 'speed']), 'all done', 'saved', 'work', 'foretold', 'SM active', 'energy'],
        sets.map((set) => [set.mode, ...set.jobs.flatMap((j) => [seconds(j.together_s), figure(j.speed)]),
          seconds(set.together_s),
          set.together_s && set.one_by_one_s ? `${(100 * (1 - set.together_s / set.one_by_one_s)).toFixed(0)} %` : '–',
          figure(set.work), figure(set.foretold),
          share(set.gpu.sm_active), set.gpu.energy_j === null ? '–' : `${figure(set.gpu.energy_j)} J`])));
  }).join('');
}

function timeline(name, rows) {
  const W = 560, H = 190, left = 56, right = 56, top = 12, bottom = 34;
  const xMost = Math.max(...rows.map((r) => r[TO]), 1e-9), watts = Math.max(...rows.map((r) => r[POWER] || 0), 1);
  const x = (v) => left + (W - left - right) * v / xMost;
  const y = (v) => H - bottom - (H - top - bottom) * Math.min(v, 1);
  const lines = [{name: 'GPU busy', column: BUSY, scale: 1, tip: percent}, {name: 'SM active', column: ACTIVE, scale: 1, tip: percent},
    {name: 'power', column: POWER, scale: 1 / (1.1 * watts), tip: (v) => `${figure(v)} W`}];
  let svg = `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${esc(name)} over time">`;
  for (const t of [0, 0.5, 1]) {
    svg += `<line class="grid-line" x1="${left}" x2="${W - right}" y1="${y(t)}" y2="${y(t)}"/>` +
        `<text x="${left - 8}" y="${y(t) + 4}" text-anchor="end">${t * 100} %</text>` +
        `<text x="${W - right + 8}" y="${y(t) + 4}">${esc(figure(t * 1.1 * watts))} W</text>`;
  }
  for (const t of ticks(xMost, 6)) svg += `<text x="${x(t)}" y="${H - bottom + 18}" text-anchor="middle">${esc(figure(t))} s</text>`;
  lines.forEach((line, i) => {
    line.colour = colour(i);
    let path = '', open = false;
    for (const row of rows) {
      if (row[line.column] === null) { open = false; continue; }
      path += `${open ? 'L' : 'M'}${x(row[FROM]).toFixed(1)} ${y(row[line.column] * line.scale).toFixed(1)}` +
          `L${x(row[TO]).toFixed(1)} ${y(row[line.column] * line.scale).toFixed(1)}`;
      open = true;
    }
    svg += `<path d="${path}" fill="none" stroke="${line.colour}" stroke-width="2"/>`;
  });
  for (const row of rows) {
    const tip = `${figure(row[FROM])} to ${figure(row[TO])} s\n` +
        lines.map((l) => `${l.name} ${row[l.column] === null ? '–' : l.tip(row[l.column])}`).join('\n') +
        `\nmemory ${row[MEMORY] === null ? '–' : figure(row[MEMORY] / 1024) + ' GiB'}`;
    svg += `<rect x="${x(row[FROM])}" y="${top}" width="${Math.max(1, x(row[TO]) - x(row[FROM]))}" height="${H - top - bottom}" ` +
        `fill="transparent" data-tip="${esc(tip)}"/>`;
  }
  return section(name, 'What the GPU did while this was measured.', svg + '</svg>' + legend(lines));
}

function notDone() {
  if (data.not_done.length === 0) return '';
  return section('Not done', 'What could not be run here, or failed.',
      table(['Workload', 'Why'], data.not_done.map((n) => [n.workload, n.why])));
}

document.getElementById('about').textContent = data.on.length > 0 ? data.on : [data.gpu, data.driver && `driver ${data.driver}`].filter(Boolean).join('; ');
document.getElementById('page').innerHTML = together() + moreAdvice() + alone() +
    `<div class="grid">${Object.entries(data.timelines).filter(([, rows]) => rows.length > 0)
        .map(([name, rows]) => timeline(name, rows)).join('')}</div>` + notDone();
