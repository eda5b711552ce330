// Which colour each point has: by class, by what is known, by an amount or a column; and what stands out.

import { json, numbers } from "/static/api.js";
import { css, ofAmount, ofClass, ofKnown, ofNothing } from "/static/colours.js";
import { byId, el } from "/static/dom.js";
import { JUNK, model } from "/static/model.js";

const NAMES = {
  class: "class",
  known: "known or new",
  sureness: "sureness",
  outlier: "how little it fits",
  given: "given label",
  split: "split",
  truth: "truth",
};
let by = "class";
let values = null; // of the column
const select = byId("colour");

export function offerColours() {
  const choices = ["class", "known", ...Object.keys(model.run.columns)];
  select.replaceChildren(...choices.map((name) => el("option", { value: name }, NAMES[name] ?? name)));
  select.value = by;
  legend();
}

select.onchange = async () => {
  const wanted = select.value;
  if (wanted in model.run.columns) values = await numbers(`/api/columns/${encodeURIComponent(wanted)}`, Float32Array);
  by = wanted;
  legend();
  model.tell("colour");
};

/** After a change of version the column may be another. */
export async function reloadColumn() {
  if (by in model.run.columns) {
    model.run = await json("/api/run");
    values = await numbers(`/api/columns/${encodeURIComponent(by)}`, Float32Array);
    model.tell("colour");
  }
}

function range() {
  const finite = values.filter(Number.isFinite).sort();
  return [finite[Math.floor(0.02 * finite.length)] ?? 0, finite[Math.floor(0.98 * finite.length)] ?? 1];
}

const pack = ([r, g, b]) => r | (g << 8) | (b << 16);
const isNone = (name) => name === "" || name === "-1" || name === "nan";

/** A function from a row to its colour in one number: hundreds of thousands are asked for at once. */
function rule() {
  const none = pack(ofNothing());
  if (by === "class" || (by in model.run.columns && !values)) {
    const ofNumber = [];
    for (const number of model.byNumber.keys()) ofNumber[number] = pack(ofClass(number));
    return (row) => (model.codes[row] < 0 ? none : ofNumber[model.codes[row]]);
  }
  if (by === "known") {
    const ofNumber = [];
    for (const one of model.byNumber.values()) ofNumber[one.number] = pack(ofKnown(one.known));
    return (row) => (model.codes[row] < 0 ? none : ofNumber[model.codes[row]]);
  }
  if (model.run.columns[by] === null) {
    const [low, high] = by === "sureness" ? [0, 1] : range();
    const shades = Array.from({ length: 65 }, (_, k) => pack(ofAmount(k / 64)));
    return (row) => {
      const share = (values[row] - low) / Math.max(high - low, 1e-9);
      return Number.isFinite(share) ? shades[Math.round(64 * Math.min(1, Math.max(0, share)))] : none;
    };
  }
  const ofValue = model.run.columns[by].map((name, k) => (isNone(name) ? none : pack(ofClass(k))));
  return (row) => ofValue[values[row]];
}

/** Of each row the colour, as the bytes red, green, blue and strength in one number, and how much larger it is drawn. */
export function colouring({ pointed }) {
  const n = model.codes.length;
  const colours = new Uint32Array(n);
  const sizes = new Uint8Array(n);
  const colour = rule();
  const { codes, selected, found, open } = model;
  const chosen = pointed ?? open;
  const hits = found && new Uint8Array(n);
  if (hits) for (const row of found) hits[row] = 1;
  for (let row = 0; row < n; row++) {
    let strength = codes[row] === JUNK ? 60 : selected.size > 1 ? 100 : 215;
    if (hits) {
      strength = hits[row] ? 255 : 40;
      sizes[row] = hits[row] ? 120 : 0;
    } else if (chosen !== null) {
      strength = codes[row] === chosen ? 255 : 72;
      sizes[row] = codes[row] === chosen ? 90 : 0;
    }
    colours[row] = colour(row) | (strength << 24);
  }
  for (const row of selected) {
    colours[row] = colour(row) | (255 << 24);
    sizes[row] = 255;
  }
  return { colours, sizes };
}

export function legend() {
  const box = byId("legend");
  const entry = (rgb, name) =>
    el("span", { className: "field" }, el("span", { className: "swatch", style: { background: css(rgb) } }), name);
  if (by === "known")
    box.replaceChildren(
      entry(ofKnown(true), "known"),
      entry(ofKnown(false), "new"),
      entry(ofNothing(), "no class, junk"),
    );
  else if (model.run?.columns[by] === null)
    box.replaceChildren(
      ...[0, 0.25, 0.5, 0.75, 1].map((t) =>
        entry(ofAmount(t), by === "sureness" ? `${100 * t}%` : t === 0 ? "fits" : t === 1 ? "fits least" : ""),
      ),
    );
  else if (by !== "class" && model.run?.columns[by].length <= 12)
    box.replaceChildren(
      ...model.run.columns[by].map((name, k) => entry(isNone(name) ? ofNothing() : ofClass(k), name || "none")),
    );
  else box.replaceChildren();
}
