// Class names on the map, at the medians of their rows.

import { model } from "/static/model.js";

/** The middle of each class, the largest first: the median of its rows, of some where it has many. */
export function middlesOfClasses() {
  const rows = new Map();
  for (let row = 0; row < model.codes.length; row++) {
    const number = model.codes[row];
    if (number < 0) continue;
    if (!rows.has(number)) rows.set(number, []);
    rows.get(number).push(row);
  }
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const middle = ([number, all]) => {
    const step = Math.max(1, Math.floor(all.length / 400));
    const some = all.filter((_, k) => k % step === 0);
    const [x, y] = [0, 1].map((d) => median(some.map((row) => model.positions[2 * row + d])));
    return { number, rows: all.length, x, y };
  };
  return [...rows].map(middle).sort((a, b) => b.rows - a.rows);
}

// Names are drawn once each and then copied: text with an outline takes too long to draw in every frame.
const sprites = new Map();
let drawnWith = "";

function sprite(name, weight, size, colour, { ground, font, ratio }) {
  const key = `${weight} ${size} ${colour} ${name}`;
  if (sprites.has(key)) return sprites.get(key);
  const canvas = document.createElement("canvas");
  const brush = canvas.getContext("2d");
  brush.font = `${weight} ${size}px ${font}`;
  const [width, height] = [Math.ceil(brush.measureText(name).width) + 12, size + 10];
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  brush.scale(ratio, ratio);
  Object.assign(brush, { font: `${weight} ${size}px ${font}`, textBaseline: "middle" });
  Object.assign(brush, { lineWidth: 4, lineJoin: "round", strokeStyle: ground, fillStyle: colour });
  brush.strokeText(name, 6, height / 2);
  brush.fillText(name, 6, height / 2);
  sprites.set(key, { canvas, width, height });
  return sprites.get(key);
}

/** Draw names without overlap: selected classes first, then larger ones; zooming in shows more. */
export function drawNames(pen, view, toPixel, middles, chosen) {
  const style = getComputedStyle(document.documentElement);
  const [ink, quiet, ground, font] = ["--ink", "--quiet", "--ground", "--font"].map((name) =>
    style.getPropertyValue(name),
  );
  const { ratio } = view;
  if (drawnWith !== ground + ratio || sprites.size > 2000) sprites.clear();
  drawnWith = ground + ratio;
  const first = middles.filter((one) => chosen.includes(one.number));
  const order = first.length ? [...first, ...middles.filter((one) => !chosen.includes(one.number))] : middles;
  const taken = [];
  const isTaken = (x0, y0, x1, y1) => taken.some((t) => x0 < t[2] && x1 > t[0] && y0 < t[3] && y1 > t[1]);
  for (const { number, x, y } of order) {
    const [px, py] = toPixel(x, y);
    const isChosen = chosen.includes(number);
    if (px < 0 || py < 0 || px > view.width || py > view.height) continue;
    if (!isChosen && isTaken(px, py, px, py)) continue; // before it costs a sprite
    const full = model.name(number);
    const name = full.length > 28 ? `${full.slice(0, 27)}…` : full;
    const weight = isChosen ? 700 : chosen.length ? 500 : 600;
    const colour = isChosen || !chosen.length ? ink : quiet;
    const { canvas, width, height } = sprite(name, weight, isChosen ? 14 : 12, colour, { ground, font, ratio });
    const box = [px - width / 2, py - height / 2, px + width / 2, py + height / 2];
    if (!isChosen && isTaken(...box)) continue;
    taken.push(box);
    pen.drawImage(canvas, Math.round(box[0] * ratio) / ratio, Math.round(box[1] * ratio) / ratio, width, height);
  }
}
