// Search by meaning: all rows by their similarity to words or to rows, the first of which stand out on the map.

import { answerTo } from "/static/api.js";
import { isShowing, show } from "/static/detail.js";
import { byId, count, el, say } from "/static/dom.js";
import { sources } from "/static/items.js";
import { model } from "/static/model.js";

const FIRST = 50;
let first = FIRST; // how many rows stand out, and are selected by the button
let turn = 0; // answers to earlier searches are dropped

/** Rank all rows; resolves to whether it worked, and to the server's sentence if not. */
async function rank(facts, title) {
  const mine = ++turn;
  const answer = await answerTo("/api/rank", facts);
  if (mine !== turn) return;
  const n = answer.byteLength / 8;
  model.ranked = { title, order: new Int32Array(answer, 0, n), similarity: new Float32Array(answer, 4 * n, n) };
  first = FIRST;
  standOut();
  show({ kind: "ranked" });
  model.tell("ranked");
}

export const rankByWords = (words) => rank({ words }, `Rows like “${words.length > 60 ? `${words.slice(0, 59)}…` : words}”`);

export async function rankByRows(rows) {
  if (!rows.length) return;
  const isOne = rows.length === 1;
  try {
    await rank({ rows }, isOne ? "Rows like this one" : `Rows like ${count(rows.length, "selected row")}`);
    byId("detail-title").focus();
  } catch (error) {
    say(error.message, { bad: true });
  }
}

const ranked = () => model.passing(Array.from(model.ranked.order));

function standOut() {
  model.found = Int32Array.from(ranked().slice(0, first));
  model.tell("search");
}

/** Another list is shown: the rows no longer stand out. */
export function leaveRanked() {
  turn++;
  [model.ranked, model.found] = [null, null];
  model.tell("search");
}

export function rankedHead() {
  const field = el("input", {
    id: "rank-count",
    type: "number",
    min: 1,
    max: model.run.rows,
    value: first,
    "aria-label": "Number of rows",
  });
  field.oninput = () => {
    first = Math.max(1, Math.min(model.run.rows, Math.round(Number(field.value)) || 1));
    standOut();
  };
  return el(
    "div",
    { className: "actions ranked" },
    el("span", {}, "The first"),
    field,
    el("button", { id: "select-ranked", className: "primary", onclick: () => model.select(ranked().slice(0, first)) }, "Select them"),
    el("span", { className: "quiet" }, `of ${count(ranked().length, "row")}, by cosine similarity`),
  );
}

export function rankedRows() {
  const { order, similarity } = model.ranked;
  const of = new Map();
  for (let k = 0; k < order.length; k++) of.set(order[k], similarity[k]);
  return sources.rows(ranked(), "No row passes the filters.", (row) => `similarity ${of.get(row).toFixed(2)}`);
}

model.on("filter", () => {
  if (isShowing("ranked")) standOut();
});
