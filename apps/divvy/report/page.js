'use strict';
// What the pages of `divvy simulate` share; the script of a page follows. Everything is
// built as text, so names go through esc() first. A page defines tipOf(event), the text
// that is shown beside the mouse.

const data = JSON.parse(document.getElementById('data').textContent);
const COLOURS = ['#3b7dd8', '#e07b39', '#2f9e6f', '#b05cc6', '#c9a227', '#d1495b', '#3aa0b3', '#7a6ff0'];

const ESCAPES = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;'};
const esc = (text) => String(text).replace(/[&<>"']/g, (c) => ESCAPES[c]);
const colour = (index) => COLOURS[index % COLOURS.length];
const dash = (index) => ['', '7 4', '2 3'][Math.floor(index / COLOURS.length) % 3];

// Three digits, no exponent.
function figure(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  const digits = Math.min(4, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
  return value.toLocaleString('en', {minimumFractionDigits: 0, maximumFractionDigits: digits});
}
const percent = (share) => share < 1 && share > 0.9995 ? '99.9 %' : `${(share * 100).toFixed(1)} %`;
const sum = (values) => values.reduce((a, b) => a + b, 0);

// About `count` round numbers from 0 to `most`.
function ticks(most, count) {
  const rough = most / count;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const list = [];
  for (let t = 0; t <= most * 1.0001; t += step) list.push(Math.abs(t) < step / 1e6 ? 0 : t);
  return list;
}

const legend = (lines) => '<div class="legend">' +
    lines.map((l) => `<span class="${l.dash ? 'dashed' : ''}" style="--mark:${l.colour}">${esc(l.name)}</span>`).join('') + '</div>';

const section = (title, why, body) =>
    `<section><h2>${esc(title)}</h2><p class="why">${esc(why)}</p>${body}</section>`;

function option(names, index) {
  return names.map((n, i) => `<option value="${i}"${i === index ? ' selected' : ''}>${esc(n)}</option>`).join('');
}

document.addEventListener('mousemove', (event) => {
  const tip = document.getElementById('tip'), text = event.target.closest ? tipOf(event) : '';
  tip.hidden = text === '';
  if (tip.hidden) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
});

