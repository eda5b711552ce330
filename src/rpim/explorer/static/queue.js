// What to label next: suggested rows, one after the other. Answers are ordinary moves, which a refit uses as labels.

import { confirmClass, move, saved, undo } from "/static/actions.js";
import { json, numbers } from "/static/api.js";
import { saidOf } from "/static/colouring.js";
import { css, ofClass } from "/static/colours.js";
import { askMove } from "/static/dialogs.js";
import { byId, count, el, percent } from "/static/dom.js";
import { filterPart, picture } from "/static/items.js";
import { model } from "/static/model.js";

const box = byId("queue");
const N = 50;
let turn = 0; // answers for what was shown before are dropped
let asked = null; // {key, rows}: the suggested rows of one version and filter, in a fixed order
let items = [];
let at = 0;
let trail = []; // rows that were answered or skipped, in this order
let skipped = new Set();
let latest = Promise.resolve(); // the row that is shown is up to date once it resolves
let busy = false;

const isDone = (item) => item.by_hand || item.junk;
const isPast = (item) => isDone(item) || skipped.has(item.row);
const current = () => items[at] ?? null;

export const queueRow = () => (box.hidden ? null : (current()?.row ?? null));

export function hideQueue() {
  turn++;
  box.hidden = true;
  box.replaceChildren();
  pointAt(null);
}

/** Show the current row. Opened again, the queue resumes where it was left; a finished one is followed by other rows. */
export function showQueue({ keep = false } = {}) {
  box.hidden = false;
  latest = load(!keep && at >= items.length);
  return latest;
}

async function load(isFresh) {
  const mine = ++turn;
  const key = `${model.state.version} ${model.filters}`;
  try {
    if (isFresh || !items.length || asked?.key !== key) {
      if (box.contains(document.activeElement)) box.focus(); // its button goes away
      box.replaceChildren(el("p", { className: "empty" }, "Choosing rows…"));
      const rows = await numbers(`/api/to-label?n=${N}${filterPart()}`, Int32Array);
      if (mine !== turn) return;
      asked = { key, rows: [...rows] };
      [items, at, trail, skipped] = [[], 0, [], new Set()];
    }
    const found = asked.rows.length ? (await json(`/api/items?rows=${asked.rows.join(",")}`)).items : [];
    if (mine !== turn) return;
    take(found);
    draw();
  } catch (error) {
    if (mine === turn) box.replaceChildren(el("p", { className: "empty" }, error.message));
  }
}

/** A row whose answer was undone is asked again; after an answer, here or elsewhere, the next open row is shown. */
function take(found) {
  const before = new Map(items.map((item) => [item.row, item]));
  items = found;
  const undone = items.findIndex((item) => !isDone(item) && before.has(item.row) && isDone(before.get(item.row)));
  for (const item of items) {
    if (!isDone(item) || !before.has(item.row) || isDone(before.get(item.row))) continue;
    skipped.delete(item.row);
    trail = [...trail.filter((row) => row !== item.row), item.row];
  }
  if (undone >= 0) {
    trail = trail.filter((row) => row !== items[undone].row);
    at = undone;
  }
  goOn();
}

function goOn() {
  while (at < items.length && isPast(items[at])) at++;
}

function pointAt(row) {
  if (model.asked === row) return;
  model.asked = row;
  model.tell("search");
}

/** One key at a time: the row is shown with all decisions so far before the next one is made. */
async function once(work) {
  const item = current();
  if (busy) return;
  busy = true;
  await saved();
  await latest;
  if (current()?.row === item?.row) await work(current());
  await latest;
  busy = false;
}
const confirm = () => once((item) => item && confirmClass(item.row, item.class));
const takeRunnerUp = () => once((item) => item && item.runner_up !== null && move([item.row], item.runner_up));
const another = () => once((item) => item && askMove([item.row]));
const skip = () =>
  once((item) => {
    if (!item) return;
    skipped.add(item.row);
    trail.push(item.row);
    goOn();
    draw();
  });

/** Back to the row before; if it was answered, the answer is undone. */
const back = () =>
  once(async () => {
    const row = trail.at(-1);
    if (row === undefined) return;
    if (!skipped.has(row)) {
      await undo();
      return;
    }
    trail.pop();
    skipped.delete(row);
    at = items.findIndex((item) => item.row === row);
    draw();
  });

/** Whether a key was for the queue. A key that is held down answers once. */
export function queueKey(event) {
  if (box.hidden) return false;
  const isFree = !event.target.closest("button, a, summary, #classes, #map");
  const work = { enter: isFree && confirm, 2: takeRunnerUp, s: skip, u: back, m: another }[event.key.toLowerCase()];
  if (!work) return false;
  event.preventDefault();
  if (!event.repeat) work();
  return true;
}

function draw() {
  const held = box.contains(document.activeElement) ? (document.activeElement.dataset.act ?? "box") : null;
  const item = current();
  pointAt(item?.row ?? null);
  box.replaceChildren(...(item ? question(item) : ending()));
  if (held) (box.querySelector(`[data-act="${held}"]:not(:disabled)`) ?? box).focus();
}

const button = (act, key, name, work, more = {}) =>
  el("button", { data: { act }, "aria-keyshortcuts": key, onclick: work, ...more }, name, el("kbd", { "aria-hidden": "true" }, key));

function question(item) {
  const named = (what, number, confidence) =>
    el(
      "div",
      { className: "guess" },
      el("span", { className: "quiet" }, what),
      el("span", { className: "swatch", style: { background: css(ofClass(number)) } }),
      el("b", {}, model.name(number)),
      model.byNumber.get(number)?.suggested ? el("span", { className: "quiet" }, model.byNumber.get(number).suggested) : null,
      el("span", { className: "quiet share" }, percent(confidence)),
    );
  return [
    el(
      "div",
      { className: "row" },
      el("b", { id: "queue-progress" }, `${at + 1} of ${items.length}`),
      el("progress", { max: items.length, value: at, "aria-label": "Progress of the queue" }),
    ),
    el(
      "article",
      { className: "asked", data: { row: item.row } },
      picture(item, 640),
      el("p", { className: "text" }, item.text ?? item.id),
      ...saidOf(item, 3).map((said) => el("p", { className: "quiet" }, said)),
    ),
    el(
      "div",
      { className: "guesses" },
      named("Predicted", item.class, item.confidence),
      item.runner_up === null ? null : named("Runner-up", item.runner_up, item.runner_up_confidence),
    ),
    el(
      "div",
      { className: "actions" },
      button("confirm", "Enter", "Confirm", confirm, { className: "primary" }),
      button("runner-up", "2", "Runner-up", takeRunnerUp, { disabled: item.runner_up === null }),
      button("another", "M", `Another ${model.noun}…`, another),
      button("skip", "S", "Skip", skip),
      button("back", "U", "Undo", back, { disabled: !trail.length }),
    ),
  ];
}

function ending() {
  if (!items.length)
    return [
      el("p", { className: "empty" }, model.mask ? "No unlabelled row passes the filters." : "Every row is labelled, decided or junk."),
    ];
  const labelled = items.filter((item) => item.by_hand && !item.junk).length;
  const junk = items.filter((item) => item.junk).length;
  const left = (junk ? `, ${junk} junk` : "") + (skipped.size ? `, ${skipped.size} skipped` : "");
  return [
    el("p", { className: "empty" }, `${count(labelled, "row")} labelled${left}. Refit to use the labels.`),
    el(
      "div",
      { className: "actions" },
      el("button", { className: "primary", data: { act: "more" }, onclick: () => showQueue() }, "More rows"),
      button("back", "U", "Undo", back, { disabled: !trail.length }),
    ),
  ];
}
