// The colour of each point: by class, known or new, or a metadata column; and highlighting.

import { json, numbers } from "/static/api.js";
import { css, ofAmount, ofClass, ofKnown, ofNothing, ofOthers } from "/static/colours.js";
import { byId, count, el, say } from "/static/dom.js";
import { JUNK, model } from "/static/model.js";

const LISTED = 32; // kinds that a legend has room for
let by = "class";
let column = null; // of the key `by`: {values, ends, kinds, others}
const select = byId("colour");

export function offerColours() {
  const option = ([key, name]) => el("option", { value: key }, name);
  const columns = Object.entries(model.run.columns);
  const own = columns.filter(([key]) => isOwn(key));
  select.replaceChildren(
    ...[["class", model.noun], ...(model.noun === "class" ? [["known", "known or new"]] : []), ...columns.filter(([key]) => !isOwn(key))].map(option),
  );
  if (own.length) select.append(el("optgroup", { label: "Metadata columns" }, ...own.map(option)));
  select.value = by;
  legend();
}

const isOwn = (key) => key.startsWith("own-");
const isColumn = (key) => key !== "class" && key !== "known";

async function load(key) {
  const path = `/api/columns/${encodeURIComponent(key)}`;
  const [values, facts] = await Promise.all([numbers(path, Float32Array), json(`${path}/legend`)]);
  return { values, ...facts };
}

select.onchange = async () => {
  const wanted = select.value;
  try {
    const loaded = isColumn(wanted) ? await load(wanted) : null;
    if (wanted !== select.value) return; // another was chosen meanwhile
    [by, column] = [wanted, loaded];
  } catch (error) {
    select.value = by;
    say(error.message, { bad: true });
  }
  legend();
  model.tell("colour");
};

/** A change of version may change the column. */
export async function reloadColumn() {
  if (!isColumn(by)) return;
  const [run, loaded] = await Promise.all([json("/api/run"), load(by)]);
  model.run = run;
  column = loaded;
  legend();
  model.tell("colour");
}

/** The metadata of a row; the column that colours the map comes first. */
export function saidOf(item, most) {
  const keys = Object.keys(item.columns).sort((a, b) => (b === by) - (a === by));
  return keys.slice(0, most).map((key) => `${model.run.columns[key]}: ${item.columns[key]}`);
}

const pack = ([r, g, b]) => r | (g << 8) | (b << 16);

/** A function from a row to its colour in one number: hundreds of thousands are asked for at once. */
function rule() {
  const none = pack(ofNothing());
  if (by === "class") {
    const ofNumber = [];
    for (const number of model.byNumber.keys()) ofNumber[number] = pack(ofClass(number));
    return (row) => (model.codes[row] < 0 ? none : ofNumber[model.codes[row]]);
  }
  if (by === "known") {
    const ofNumber = [];
    for (const one of model.byNumber.values()) ofNumber[one.number] = pack(ofKnown(one.known));
    return (row) => (model.codes[row] < 0 ? none : ofNumber[model.codes[row]]);
  }
  const { values, ends, kinds } = column;
  if (ends) {
    const shades = Array.from({ length: 65 }, (_, k) => pack(ofAmount(k / 64)));
    return (row) => (Number.isNaN(values[row]) ? none : shades[Math.round(64 * values[row])]);
  }
  const ofKind = [...kinds.map((_, k) => pack(ofClass(k))), pack(ofOthers())];
  return (row) => ofKind[values[row]] ?? none;
}

/** Of each row the colour, as the bytes red, green, blue and strength in one number, and how much larger it is drawn. */
export function colouring({ pointed }) {
  const n = model.codes.length;
  const colours = new Uint32Array(n);
  const sizes = new Uint8Array(n);
  const colour = rule();
  const { codes, selected, found, open, mask, asked } = model;
  const chosen = pointed ?? open;
  const hits = found && new Uint8Array(n);
  if (hits) for (const row of found) hits[row] = 1;
  for (let row = 0; row < n; row++) {
    let strength = codes[row] === JUNK ? 60 : selected.size > 1 || asked !== null ? 100 : 215;
    if (hits) {
      strength = hits[row] ? 255 : 40;
      sizes[row] = hits[row] ? 120 : 0;
    } else if (chosen !== null) {
      strength = codes[row] === chosen ? 255 : 72;
      sizes[row] = codes[row] === chosen ? 90 : 0;
    }
    if (mask && !mask[row]) [strength, sizes[row]] = [14, 0];
    colours[row] = colour(row) | (strength << 24);
  }
  for (const row of asked === null ? selected : [...selected, asked]) {
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
  else if (column) {
    const { values, ends, kinds, others } = column;
    const entries = ends
      ? [
          el("span", {}, ends[0]),
          ...[0, 0.25, 0.5, 0.75, 1].map((t) => entry(ofAmount(t), "")),
          el("span", {}, ends[1]),
        ]
      : kinds.map((name, k) => entry(ofClass(k), name));
    if (others) entries.push(entry(ofOthers(), `${count(others, "other")}`));
    if (values.some(Number.isNaN)) entries.push(entry(ofNothing(), "none"));
    box.replaceChildren(...(entries.length <= LISTED + 2 ? entries : []));
  } else box.replaceChildren();
  const isLong = box.childElementCount > 8;
  box.classList.toggle("long", isLong);
  box.tabIndex = isLong ? 0 : -1; // it can be scrolled
}
