// The map: pan, zoom, hover, lasso selection, and class names.

import { json } from "/static/api.js";
import { css, ofClass } from "/static/colours.js";
import { byId, el, later } from "/static/dom.js";
import { PointIndex } from "/static/point_index.js";
import { model } from "/static/model.js";
import { drawNames, placesOfClasses } from "/static/names.js";
import { painter } from "/static/points.js";
import { colouring, saidOf } from "/static/colouring.js";

const stage = byId("stage");
const over = byId("over");
const tip = byId("tip");
const pen = over.getContext("2d");
const paint = painter(byId("points"), new URLSearchParams(location.search).get("renderer") === "canvas");

const view = { scale: 1, whole: 1, x: 0, y: 0, width: 1, height: 1, ratio: 1 };
let index = new PointIndex(new Float32Array(0));
let places = []; // of classes
let reserved = []; // rectangles of the controls on the map
let hovered = -1;
let pointed = null; // a class that is pointed at elsewhere
let line = null; // of the lasso, in positions
let lasso = false;
let waiting = null; // for the next frame: null, still or moving

export const mapFacts = {
  frames: 0,
  view,
  least: 0.04, // the smallest share of the points that is drawn while the map moves
  get renderer() {
    return paint.kind;
  },
  get share() {
    return share;
  },
  names: [], // {name, box} of each name that is drawn
};

// While the map moves, a machine that is too slow for all points draws a share of them; at rest all are drawn.
let share = 1;
let lastFrame = 0;
const rest = later(() => {
  lastFrame = 0;
  redraw();
}, 160);

export function redraw(moving = false) {
  if (moving) rest();
  if (waiting) {
    waiting = moving ? "moving" : waiting;
    return;
  }
  waiting = moving ? "moving" : "still";
  requestAnimationFrame((now) => {
    const isMoving = waiting === "moving";
    waiting = null;
    if (isMoving && lastFrame)
      share = Math.min(
        1,
        Math.max(mapFacts.least, share * (now - lastFrame > 30 ? 0.75 : now - lastFrame < 20 ? 1.1 : 1)),
      );
    lastFrame = isMoving ? now : 0;
    mapFacts.frames++;
    paint.draw(view, isMoving ? share : 1);
    drawOver(isMoving);
  });
}
paint.again = redraw;

export function fitAll() {
  const { x0, y0, x1, y1 } = index.box;
  view.whole = 0.92 * Math.min(view.width / Math.max(x1 - x0, 1e-6), view.height / Math.max(y1 - y0, 1e-6));
  Object.assign(view, { scale: view.whole, x: (x0 + x1) / 2, y: (y0 + y1) / 2 });
  redraw();
}

export function zoom(factor, px = view.width / 2, py = view.height / 2) {
  const [x, y] = toPosition(px, py);
  view.scale = Math.min(view.whole * 400, Math.max(view.whole * 0.4, view.scale * factor));
  view.x = x - (px - view.width / 2) / view.scale;
  view.y = y + (py - view.height / 2) / view.scale;
  redraw(true);
}

export function pan(px, py) {
  view.x -= px / view.scale;
  view.y += py / view.scale;
  redraw(true);
}

export function setLasso(on) {
  lasso = on;
  byId("lasso").setAttribute("aria-pressed", on);
  over.classList.toggle("drawing", on);
}

/** Make a class stand out while it is pointed at in a list. */
export function pointAt(number) {
  if (pointed === number) return;
  pointed = number;
  recolour();
}

export function recolour() {
  const { colours, sizes } = colouring({ pointed });
  paint.colours(colours, sizes);
  redraw();
}

function toPosition(px, py) {
  return [view.x + (px - view.width / 2) / view.scale, view.y - (py - view.height / 2) / view.scale];
}

function toPixel(x, y) {
  return [view.width / 2 + (x - view.x) * view.scale, view.height / 2 - (y - view.y) * view.scale];
}

export const pixelOf = (row) => toPixel(model.positions[2 * row], model.positions[2 * row + 1]);

function resize() {
  const box = stage.getBoundingClientRect();
  if (!box.width || !box.height) return;
  const showsAll = view.width === 1 || view.scale === view.whole;
  Object.assign(view, { width: box.width, height: box.height, ratio: Math.min(devicePixelRatio || 1, 2) });
  for (const canvas of [byId("points"), over]) {
    canvas.width = Math.round(box.width * view.ratio);
    canvas.height = Math.round(box.height * view.ratio);
  }
  reserve();
  if (showsAll) fitAll();
  redraw();
}

/** Names leave room for the controls. */
function reserve() {
  const { left, top } = stage.getBoundingClientRect();
  const boxes = [...stage.querySelectorAll(".zoom, .legend")].map((one) => one.getBoundingClientRect());
  reserved = boxes.filter((box) => box.width).map((box) => [box.left - left, box.top - top, box.right - left, box.bottom - top]);
}

function drawOver(isMoving) {
  const style = getComputedStyle(document.documentElement);
  pen.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  pen.clearRect(0, 0, view.width, view.height);
  mapFacts.names = drawNames(pen, view, toPixel, places, {
    chosen: [pointed, model.open].filter((number) => number !== null),
    covered: (x0, y0, x1, y1) => index.count(...toPosition(x0, y1), ...toPosition(x1, y0)),
    reserved,
    isMoving,
  });
  if (hovered >= 0) {
    const [x, y] = pixelOf(hovered);
    pen.strokeStyle = style.getPropertyValue("--ink");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x, y, 8, 0, 7);
    pen.stroke();
  }
  if (line?.length > 1) {
    pen.strokeStyle = style.getPropertyValue("--accent");
    pen.fillStyle = style.getPropertyValue("--accent");
    pen.lineWidth = 2;
    pen.beginPath();
    for (const [x, y] of line) pen.lineTo(...toPixel(x, y));
    pen.closePath();
    pen.stroke();
    pen.globalAlpha = 0.12;
    pen.fill();
    pen.globalAlpha = 1;
  }
}

// What is under the pointer

let shown = -1;
const known = new Map(); // items that were fetched, until something changes

async function hover(px, py) {
  const row = index.nearest(...toPosition(px, py), 12 / view.scale, model.mask);
  if (row !== hovered) {
    hovered = row;
    redraw();
  }
  over.style.cursor = lasso ? "" : row >= 0 ? "pointer" : "";
  if (row < 0) {
    tip.hidden = true;
    shown = -1;
    return;
  }
  if (row !== shown) {
    shown = row;
    if (!known.has(row)) known.set(row, await json(`/api/rows/${row}`).catch(() => null));
    if (shown !== row || !known.get(row)) return;
    fillTip(known.get(row));
  }
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(px + 16, view.width - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(py + 16, view.height - box.height - 8))}px`;
}

function fillTip(item) {
  const picture =
    model.run.shows === "images"
      ? el("img", { src: `/api/pictures/${item.row}?size=160`, alt: "", onerror: (event) => event.target.remove() })
      : null;
  tip.replaceChildren(
    ...[
      picture,
      el("p", {}, item.text ?? item.id),
      el(
        "p",
        { className: "quiet" },
        el("span", { className: "swatch", style: { background: css(ofClass(item.junk ? -1 : item.class)) } }),
        ` ${item.junk ? "junk" : model.name(item.class)} · ${Math.round(100 * item.confidence)}% confidence`,
      ),
      ...saidOf(item, 6).map((said) => el("p", { className: "quiet said" }, said)),
    ].filter(Boolean),
  );
}

// Pointers: one moves the map or draws, two pinch

const pointers = new Map();
let moved = false;

over.addEventListener("pointerdown", (event) => {
  over.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
  moved = false;
  line = (lasso || event.shiftKey) && pointers.size === 1 ? [toPosition(event.offsetX, event.offsetY)] : null;
});
over.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    hover(event.offsetX, event.offsetY);
    return;
  }
  const now = [event.offsetX, event.offsetY];
  if (Math.hypot(now[0] - before[0], now[1] - before[1]) > 2) moved = true;
  if (line) {
    line.push(toPosition(...now));
    redraw();
  } else if (pointers.size === 2) pinch(event.pointerId, before, now);
  else pan(now[0] - before[0], now[1] - before[1]);
  pointers.set(event.pointerId, now);
  tip.hidden = true;
});
function pinch(id, before, now) {
  const [other] = [...pointers].filter(([one]) => one !== id).map(([, at]) => at);
  const distance = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
  zoom(distance(now) / Math.max(distance(before), 1), other[0], other[1]);
}
function released(event) {
  if (!pointers.delete(event.pointerId)) return;
  if (line && line.length > 2) model.select(model.passing(index.inside(line)), event.ctrlKey || event.metaKey ? "add" : "only");
  else if (!moved && event.type === "pointerup") {
    const row = index.nearest(...toPosition(event.offsetX, event.offsetY), 12 / view.scale, model.mask);
    if (row >= 0) over.dispatchEvent(new CustomEvent("pick", { detail: { row, add: event.ctrlKey || event.metaKey } }));
  }
  line = null;
  redraw();
}
over.addEventListener("pointerup", released);
over.addEventListener("pointercancel", released);
over.addEventListener("pointerleave", () => {
  hovered = -1;
  tip.hidden = true;
  redraw();
});
over.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.offsetX, event.offsetY);
  },
  { passive: false },
);
over.addEventListener("keydown", (event) => {
  const step = 60;
  const work = {
    ArrowLeft: () => pan(step, 0),
    ArrowRight: () => pan(-step, 0),
    ArrowUp: () => pan(0, step),
    ArrowDown: () => pan(0, -step),
    "+": () => zoom(1.4),
    "=": () => zoom(1.4),
    "-": () => zoom(1 / 1.4),
    0: fitAll,
  }[event.key];
  if (work && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    work();
  }
});

byId("zoom-in").onclick = () => zoom(1.5);
byId("zoom-out").onclick = () => zoom(1 / 1.5);
byId("zoom-all").onclick = fitAll;
byId("lasso").onclick = () => setLasso(!lasso);
new ResizeObserver(resize).observe(stage);

model.on("map", () => {
  index = new PointIndex(model.positions);
  paint.positions(model.positions);
  places = placesOfClasses();
  recolour();
  fitAll();
  byId("map-kind").textContent = model.run.map === "UMAP" ? "by UMAP" : "by principal directions";
});
model.on("state", () => {
  known.clear();
  shown = -1;
  places = placesOfClasses();
  recolour();
});
model.on("filter", () => {
  places = placesOfClasses();
  recolour();
});
model.on("colour", reserve);
for (const what of ["open", "selection", "search", "colour", "theme"]) model.on(what, recolour);
