// The list of classes: filter, sort, open, and select several to merge.

import { css, ofClass } from "/static/colours.js";
import { byId, count, el, percent } from "/static/dom.js";
import { pointAt } from "/static/map.js";
import { JUNK, model } from "/static/model.js";

const list = byId("class-list");
const filter = byId("class-filter");
const order = byId("class-order");
export const checked = new Set();
let which = "all";

const ORDERS = {
  rows: (a, b) => model.rowsOf(b) - model.rowsOf(a),
  confidence: (a, b) => a.confidence - b.confidence,
  stability: (a, b) => (a.stability ?? 2) - (b.stability ?? 2),
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
};
const WHICH = { all: () => true, new: (one) => !one.known, known: (one) => one.known, open: (one) => !one.accepted };

function shown() {
  const words = filter.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  return model.state.classes
    .filter((one) => WHICH[which](one) && words.every((word) => `${one.name} ${one.suggested}`.toLocaleLowerCase().includes(word)))
    .sort((a, b) => ORDERS[order.value](a, b) || a.number - b.number);
}

export function drawClasses() {
  if (!model.state) return;
  for (const number of checked) if (!model.byNumber.has(number)) checked.delete(number);
  const held = document.activeElement?.closest?.("#class-list li") ? document.activeElement : null;
  const focused = held?.closest("li").dataset.number;
  const classes = shown();
  list.replaceChildren(...classes.map(line));
  if (which === "all") list.append(...asides());
  if (!classes.length) list.append(el("li", {}, el("p", { className: "empty" }, `No matching ${model.noun}.`)));
  byId("class-count").textContent =
    `${classes.length.toLocaleString("en")} of ${model.state.classes.length.toLocaleString("en")}`;
  byId("merge-bar").hidden = checked.size < 2;
  byId("merge-count").textContent = `${checked.size} selected`;
  if (focused) list.querySelector(`li[data-number="${focused}"] ${held.tagName === "INPUT" ? "input" : ".class"}`)?.focus();
}

/** Rows outside of all classes, which can be inspected and restored. */
function asides() {
  const kinds = [
    ["junk", "Junk", JUNK, model.state.junk],
    ["without", `No ${model.noun}`, -1, model.state.without],
  ].map(([id, name, code, rows]) => [id, name, code, model.within ? (model.within.get(code) ?? 0) : rows]);
  return kinds
    .filter(([, , , rows]) => rows > 0)
    .map(([id, name, code, rows]) =>
      el(
        "li",
        { className: "aside" },
        el(
          "button",
          { id: `${id}-rows`, className: "class", onclick: () => showRows(code) },
          el("span", { className: "swatch", style: { background: css(ofClass(code)) } }),
          el("span", { className: "name" }, name),
          el("span", { className: "size", "aria-label": count(rows, "row") }, rows.toLocaleString("en")),
        ),
      ),
    );
}

const ofAll = (rows, all) => [rows.toLocaleString("en"), el("span", { className: "quiet" }, ` / ${all.toLocaleString("en")}`)];

function showRows(code) {
  const rows = [];
  for (let row = 0; row < model.codes.length; row++) if (model.codes[row] === code) rows.push(row);
  model.select(model.passing(rows));
  model.tell("show-selection");
}

function line(one) {
  const badge = one.accepted
    ? el("span", { className: "badge good" }, "accepted")
    : one.known || model.noun === "group"
      ? null
      : el("span", { className: "badge new" }, "new");
  const rows = model.rowsOf(one);
  return el(
    "li",
    {
      data: { number: one.number, open: String(one.number === model.open), none: String(rows === 0 && one.rows > 0) },
      onmouseenter: () => pointAt(one.number),
      onmouseleave: () => pointAt(null),
    },
    el("input", {
      type: "checkbox",
      checked: checked.has(one.number),
      "aria-label": `Select ${one.name} for merging`,
      onchange: (event) => {
        event.target.checked ? checked.add(one.number) : checked.delete(one.number);
        drawClasses();
      },
    }),
    el(
      "button",
      {
        className: "class",
        "aria-current": one.number === model.open ? "true" : null,
        onclick: () => model.show(one.number),
      },
      el("span", { className: "swatch", style: { background: css(ofClass(one.number)) } }),
      el("span", { className: "name", title: one.name }, one.name),
      el(
        "span",
        { className: "size" },
        badge,
        model.within
          ? el("span", { "aria-label": `${count(rows, "row")} of ${one.rows}` }, ...ofAll(rows, one.rows))
          : el("span", { "aria-label": count(rows, "row") }, rows.toLocaleString("en")),
      ),
      one.suggested ? el("span", { className: "hint" }, one.suggested) : null,
      el(
        "span",
        { className: "measures" },
        one.stability === null || one.stability === undefined
          ? null
          : el(
              "span",
              { className: one.stability < model.run?.unstable ? "low" : "" },
              `stability ${percent(one.stability)}`,
            ),
        el("span", {}, `confidence ${percent(one.confidence)}`),
      ),
    ),
  );
}

filter.oninput = drawClasses;
order.onchange = drawClasses;
for (const chip of document.querySelectorAll(".chip")) {
  chip.onclick = () => {
    which = chip.dataset.which;
    for (const other of document.querySelectorAll(".chip")) other.setAttribute("aria-pressed", other === chip);
    drawClasses();
  };
}
list.addEventListener("keydown", (event) => {
  if (!["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
  const buttons = [...list.querySelectorAll(".class")];
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (buttons[to]) {
    event.preventDefault();
    buttons[to].focus();
  }
});
byId("merge-none").onclick = () => {
  checked.clear();
  drawClasses();
  (list.querySelector(".class[aria-current]") ?? list.querySelector(".class"))?.focus(); // the bar is gone
};

/** Without known classes there are groups, and neither new nor known ones. */
model.on("state", () => {
  const isGroup = model.noun === "group";
  byId("classes-word").textContent = isGroup ? "Groups" : "Classes";
  list.setAttribute("aria-label", isGroup ? "Groups" : "Classes");
  filter.placeholder = `Find a ${model.noun}`;
  filter.previousElementSibling.textContent = filter.placeholder;
  for (const chip of document.querySelectorAll(".chip")) chip.hidden = isGroup && ["new", "known"].includes(chip.dataset.which);
  if (isGroup && ["new", "known"].includes(which)) document.querySelector('.chip[data-which="all"]').click();
  document.querySelector('.tabs [data-view="classes"]').textContent = isGroup ? "Groups" : "Classes";
});
for (const what of ["state", "run", "open", "theme", "filter"]) model.on(what, drawClasses);
