// The pane of one class: its name, facts, actions and rows.

import { accept, rename } from "/static/actions.js";
import { css, ofClass } from "/static/colours.js";
import { askMergeInto, askSplit } from "/static/dialogs.js";
import { byId, count, el, percent } from "/static/dom.js";
import { focusItems, showItems, sources } from "/static/items.js";
import { model } from "/static/model.js";
import { hideHistory, showHistory } from "/static/history.js";
import { hideLabelIssues, showLabelIssues } from "/static/label_issues.js";
import { hideQueue, showQueue } from "/static/queue.js";
import { hideOverTime, overTimeHead, showOverTime } from "/static/over_time.js";
import { hideTree, showTree } from "/static/tree.js";
import { leaveRanked, rankedHead, rankedRows } from "/static/ranking.js";

const head = byId("detail-head");
const ORDERS = [
  ["typical", "Typical", "Rows with the highest confidence"],
  ["doubtful", "Doubtful", "Rows with the lowest confidence"],
  ["nearby", "Nearby", "Nearest rows of other classes"],
];
const STABLE = "How well the members of the committee reproduce the class";
let order = "typical";
let showing = { kind: "none" }; // none, class, selection, ranked, over_time, label_issues, queue, tree, history
let renaming = false;
let focusBack = null; // after a rename, to where the focus was

export const isRenaming = () => renaming;
export const isShowing = (kind) => showing.kind === kind;

export function startRename() {
  if (model.open === null || showing.kind !== "class") return;
  const held = document.activeElement;
  const number = held.closest("#class-list li")?.dataset.number;
  const button = `#class-list li[data-number="${number}"] .class`; // the list is drawn again
  focusBack = held.closest("#items")
    ? focusItems
    : () => (document.querySelector(button) ?? byId("rename") ?? byId("detail-title")).focus();
  renaming = true;
  drawHead();
  const field = head.querySelector("input");
  field.focus();
  field.select();
}

function stopRename() {
  renaming = false;
  drawHead();
  focusBack?.();
}

function nameOf(one) {
  const swatch = el("span", { className: "swatch", style: { background: css(ofClass(one.number)) } });
  if (!renaming)
    return el("div", { className: "detail-name" }, swatch, el("h2", { id: "detail-title", tabIndex: -1 }, one.name));
  const field = el("input", {
    type: "text",
    value: one.name,
    maxLength: 200,
    "aria-label": `Name of the ${model.noun}`,
    autocomplete: "off",
  });
  const save = async () => {
    const name = field.value.trim();
    if (!name || name === one.name || (await rename(one.number, name))) stopRename();
  };
  field.onkeydown = (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      save();
    }
    if (event.key === "Escape") {
      event.stopPropagation();
      stopRename();
    }
  };
  return el(
    "div",
    { className: "detail-name" },
    swatch,
    el("h2", { id: "detail-title", className: "hidden" }, `Rename ${one.name}`),
    field,
    el("button", { className: "primary", onclick: save }, "Save"),
    el("button", { onclick: stopRename }, "Cancel"),
  );
}

function drawClass(one) {
  const fact = (value, what, title = "") => el("span", { title }, el("b", {}, value), ` ${what}`);
  head.replaceChildren(
    nameOf(one),
    el(
      "div",
      { className: "facts" },
      model.within ? fact(model.rowsOf(one).toLocaleString("en"), `of ${count(one.rows, "row")}`) : null,
      model.within ? null : fact(one.rows.toLocaleString("en"), one.rows === 1 ? "row" : "rows"),
      one.labelled ? fact(one.labelled.toLocaleString("en"), "labelled") : null,
      fact(percent(one.confidence), "confidence"),
      one.stability === null || one.stability === undefined ? null : fact(percent(one.stability), "stability", STABLE),
      model.noun === "group"
        ? null
        : el("span", { className: one.known ? "badge" : "badge new" }, one.known ? "known" : "new"),
      one.accepted ? el("span", { className: "badge good" }, "accepted") : null,
    ),
    el(
      "div",
      { className: "actions" },
      el(
        "button",
        { id: "accept", className: one.accepted ? "" : "primary", onclick: () => accept(one.number, !one.accepted) },
        one.accepted ? "Reopen" : "Accept",
      ),
      one.suggested
        ? el(
            "button",
            { id: "take-name", onclick: () => rename(one.number, one.suggested) },
            `Rename to “${one.suggested}”`,
          )
        : null,
      el("button", { id: "rename", onclick: startRename }, "Rename"),
      el("button", { id: "split", onclick: () => askSplit(one.number) }, "Split…"),
      el("button", { id: "merge-into", onclick: () => askMergeInto(one.number) }, "Merge into…"),
    ),
    el(
      "div",
      { className: "orders", role: "tablist", "aria-label": "Which rows", onkeydown: changeTab },
      ...ORDERS.map(([key, name, title]) =>
        el(
          "button",
          {
            id: `tab-${key}`,
            role: "tab",
            "aria-selected": String(order === key),
            "aria-controls": "rows",
            tabIndex: order === key ? 0 : -1,
            title,
            onclick: () => showOrder(key),
          },
          name,
        ),
      ),
    ),
  );
}

function showOrder(key) {
  order = key;
  drawHead();
  fill();
}

/** Arrow keys, Home and End between the tabs. */
function changeTab(event) {
  const at = ORDERS.findIndex(([key]) => key === order);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const [key] = ORDERS.at(to % ORDERS.length);
  showOrder(key);
  byId(`tab-${key}`).focus();
}

/** Redraw, keeping the focus. */
function drawHead() {
  const held = head.contains(document.activeElement) ? document.activeElement : null;
  redraw();
  if (held) ((held.id && head.querySelector(`#${held.id}`)) || byId("detail-title")).focus();
}

function redraw() {
  const one = showing.kind === "class" ? model.byNumber.get(model.open) : null;
  const rows = byId("rows");
  for (const [name, value] of Object.entries({ role: "tabpanel", "aria-labelledby": `tab-${order}` }))
    one ? rows.setAttribute(name, value) : rows.removeAttribute(name);
  if (one) {
    drawClass(one);
    return;
  }
  const back =
    model.open !== null
      ? el("button", { onclick: () => model.show(model.open) }, `Back to ${model.name(model.open)}`)
      : null;
  const title = {
    none: `Select a ${model.noun}`,
    selection: `${count(model.selected.size, "row")} selected`,
    ranked: model.ranked?.title,
    over_time: `${model.noun === "group" ? "Groups" : "Classes"} over time`,
    label_issues: "Label issues",
    queue: "What to label next",
    tree: `Tree of the ${model.nouns}`,
    history: "History",
  }[showing.kind];
  const below = {
    none: () => [
      quiet(`Open a ${model.noun} from the list, or click a point on the map. Hold Shift and draw around points to select them.`),
      ...aboutTheFit().map(quiet),
    ],
    label_issues: () => [
      quiet(
        "Members of the committee that did not see these labels are confident of another class. Most likely errors first.",
      ),
    ],
    queue: () => [quiet(`Rows whose labels would help a refit most, of every ${model.noun === "group" ? "group" : "new class"} first.`)],
    tree: () => [quiet(`Similar ${model.nouns}, and those that the model confuses, are near each other.`)],
    ranked: () => [rankedHead(), el("div", { className: "actions" }, back)],
    over_time: () => [overTimeHead(), el("div", { className: "actions" }, back)],
    history: () => [quiet("Every decision, latest first, and what each refit changed. Undo and redo are at the top.")],
  }[showing.kind] ?? (() => [el("div", { className: "actions" }, back)]);
  head.replaceChildren(el("h2", { id: "detail-title", tabIndex: -1 }, title), ...below());
}

const quiet = (text) => el("p", { className: "quiet" }, text);

/** Facts about the fit. */
function aboutTheFit() {
  const { members, expected_accuracy: accuracy } = model.state ?? {};
  if (!members || members < 2) return [];
  const expected = "Expected accuracy on unlabelled rows of known classes";
  return [
    `Fitted by a committee of ${members} members.`,
    ...(accuracy === null ? [] : [`${expected}: ${percent(accuracy)} (estimated on held-out labels).`]),
  ];
}

function fill(keep = false) {
  const isList = !["label_issues", "queue", "tree", "history", "over_time"].includes(showing.kind);
  byId("rows").hidden = !isList;
  if (showing.kind === "label_issues") showLabelIssues({ keep });
  else hideLabelIssues();
  if (showing.kind === "queue") showQueue({ keep });
  else hideQueue();
  if (showing.kind === "tree") showTree();
  else hideTree();
  if (showing.kind === "history") showHistory();
  else hideHistory();
  if (showing.kind === "over_time") showOverTime();
  else hideOverTime();
  if (!isList) return;
  if (showing.kind === "class") showItems(sources.ofClass(model.open, order), { keep });
  else if (showing.kind === "selection") showItems(sources.rows([...model.selected]), { keep });
  else if (showing.kind === "ranked") showItems(rankedRows(), { keep });
  else byId("items").replaceChildren();
}

export function show(what) {
  renaming = false;
  if (showing.kind === "ranked" && !["ranked", "selection"].includes(what.kind)) leaveRanked();
  showing = what;
  drawHead();
  fill();
}

model.on("open", () => {
  order = "typical";
  show({ kind: model.open === null ? "none" : "class" });
});
model.on("state", () => {
  if (showing.kind === "class" && model.open === null) showing = { kind: "none" };
  if (!renaming) drawHead();
  fill(true);
});
model.on("filter", () => {
  if (!renaming) drawHead();
  fill();
});
model.on("selection", () => {
  if (showing.kind === "selection" && model.selected.size) {
    drawHead();
  }
});
