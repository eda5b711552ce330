// Class names on the map: beside their rows, where they cover few points and no other name.

import { model } from "/static/model.js";

const SPACE = 6000; // square pixels of the map for each name
const FARTHEST = 60; // pixels between a name and the middle of its class

/** Where each class is, the largest first: the median of its rows, and the boxes of most and of all; of some if it has many. */
export function placesOfClasses() {
  const rows = new Map();
  for (let row = 0; row < model.codes.length; row++) {
    const number = model.codes[row];
    if (number < 0 || (model.mask && !model.mask[row])) continue;
    if (!rows.has(number)) rows.set(number, []);
    rows.get(number).push(row);
  }
  const place = ([number, all]) => {
    const step = Math.max(1, Math.floor(all.length / 400));
    const some = all.filter((_, k) => k % step === 0);
    const quantiles = (d) => {
      const values = some.map((row) => model.positions[2 * row + d]).sort((a, b) => a - b);
      return [0, 0.1, 0.5, 0.9, 1].map((share) => values[Math.round(share * (values.length - 1))]);
    };
    const [xs, ys] = [quantiles(0), quantiles(1)];
    const boxes = [1, 0].map((k) => [xs[k], ys[k], xs[4 - k], ys[4 - k]]);
    return { number, rows: all.length, x: xs[2], y: ys[2], boxes };
  };
  return [...rows].map(place).sort((a, b) => b.rows - a.rows);
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

/** Where a name may be: in the middle of its class, or around one of its boxes. */
function* candidates(one, width, height, toPixel) {
  const [x, y] = toPixel(one.x, one.y);
  yield [x, y];
  for (const [x0, y0, x1, y1] of one.boxes) {
    const [left, bottom] = toPixel(x0, y0);
    const [right, top] = toPixel(x1, y1);
    for (const px of [x, left - width / 2, right + width / 2])
      for (const py of [y, top - height / 2, bottom + height / 2]) if (px !== x || py !== y) yield [px, py];
  }
}

let offsets = new Map(); // of each name from the middle of its class, when the map was last at rest

/**
 * Draw names: of chosen classes first, then of larger ones; zooming in shows more. `covered` tells how many points a
 * rectangle covers, and `reserved` are rectangles of controls on the map. While the map moves, names stay beside their
 * classes and none is added, because looking for places takes time. Returns the names with their boxes.
 */
export function drawNames(pen, view, toPixel, places, { chosen, covered, reserved, isMoving }) {
  const style = getComputedStyle(document.documentElement);
  const [ink, quiet, ground, font] = ["--ink", "--quiet", "--ground", "--font"].map((name) =>
    style.getPropertyValue(name),
  );
  const { ratio } = view;
  if (drawnWith !== ground + ratio || sprites.size > 2000) sprites.clear();
  drawnWith = ground + ratio;
  const first = places.filter((one) => chosen.includes(one.number));
  const order = first.length ? [...first, ...places.filter((one) => !chosen.includes(one.number))] : places;
  const drawn = [];
  const before = offsets;
  if (!isMoving) offsets = new Map();
  const taken = [...reserved];
  const isTaken = ([x0, y0, x1, y1]) => taken.some((t) => x0 < t[2] + 8 && x1 > t[0] - 8 && y0 < t[3] && y1 > t[1]);
  const isOutside = ([x0, y0, x1, y1]) => x0 < 0 || y0 < 0 || x1 > view.width || y1 > view.height;
  let room = (view.width * view.height) / SPACE;
  for (const one of order) {
    const [px, py] = toPixel(one.x, one.y);
    const isChosen = chosen.includes(one.number);
    if (px < 0 || py < 0 || px > view.width || py > view.height || (!isChosen && room < 1)) continue;
    if (isMoving && !isChosen && !before.has(one.number)) continue;
    const full = model.title(one.number);
    const name = full.length > 28 ? `${full.slice(0, 27)}…` : full;
    const weight = isChosen ? 700 : chosen.length ? 500 : 600;
    const colour = isChosen || !chosen.length ? ink : quiet;
    const { canvas, width, height } = sprite(name, weight, isChosen ? 14 : 12, colour, { ground, font, ratio });
    let [best, least] = [null, Infinity];
    const [dx, dy] = before.get(one.number) ?? [0, 0];
    const within = (value, half, all) => Math.min(Math.max(value, half), all - half);
    for (const [cx, cy] of isMoving ? [[px + dx, py + dy]] : candidates(one, width, height, toPixel)) {
      // At an edge of the map, a name is shifted into it.
      const [x, y] = isMoving ? [cx, cy] : [within(cx, width / 2, view.width), within(cy, height / 2, view.height)];
      const box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2];
      // A name far from its class says nothing: zooming in makes room for it.
      const away = Math.hypot(Math.max(Math.abs(x - px) - width / 2, 0), Math.max(Math.abs(y - py) - height / 2, 0));
      if (isTaken(box) || isOutside(box) || (away > FARTHEST && !isChosen)) continue;
      const cost = 40 * Math.log2(1 + covered(...box)) + Math.hypot(x - px, y - py); // a point is worth 40 pixels
      if (cost < least) [best, least] = [box, cost];
    }
    if (!best && isChosen) best = [px - width / 2, py - height / 2, px + width / 2, py + height / 2];
    if (!best) continue;
    room--;
    taken.push(best);
    if (!isMoving) offsets.set(one.number, [(best[0] + best[2]) / 2 - px, (best[1] + best[3]) / 2 - py]);
    drawn.push({ name, box: best });
    const [near, far] = [0, 1].map((d) => Math.min(Math.max([px, py][d], best[d] + 6), best[d + 2] - 6));
    if (Math.hypot(px - near, py - far) > 14) {
      pen.strokeStyle = quiet; // a line to the middle of its class
      pen.lineWidth = 0.75;
      pen.beginPath();
      pen.moveTo(near, far);
      pen.lineTo(px, py);
      pen.stroke();
    }
    pen.drawImage(canvas, Math.round(best[0] * ratio) / ratio, Math.round(best[1] * ratio) / ratio, width, height);
  }
  return drawn;
}
