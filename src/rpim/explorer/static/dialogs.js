// The dialogs, in the browser's dialog element, which handles focus and Escape.

import { change } from "/static/api.js";
import { merge, move, moveToNew, split } from "/static/actions.js";
import { css, ofClass } from "/static/colours.js";
import { byId, count, el, say } from "/static/dom.js";
import { model } from "/static/model.js";

const dialog = byId("dialog");

function open(title, body, buttons = [], leave = buttons.length ? "Cancel" : "Close") {
  dialog.replaceChildren(
    el("header", {}, el("h2", { id: "dialog-title" }, title)),
    el("div", { className: "body" }, ...body),
    el("footer", {}, el("button", { onclick: () => dialog.close() }, leave), ...buttons),
  );
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("[data-first]")?.focus();
}
/** Enter in a field confirms; on a button it presses that button. */
dialog.onkeydown = (event) => {
  if (event.key !== "Enter" || event.defaultPrevented || event.target.tagName !== "INPUT") return;
  event.preventDefault();
  dialog.querySelector("footer .primary")?.click();
};

const run = (work) => async () => {
  dialog.close();
  await work();
};
const swatch = (number) => el("span", { className: "swatch", style: { background: css(ofClass(number)) } });

/** The words of a name: underscores and dashes separate them as spaces do. */
const wordsOf = (text) => text.toLocaleLowerCase().split(/[\s_-]+/).filter(Boolean);

/**
 * Pick a class by typing a part of its name or suggested name. Enter takes the only match, or the one with exactly this
 * name. With `fresh`, a button makes a new class of an unused name; Enter in the field never does.
 */
function pick(title, chosen, { fresh = null, without = [] } = {}) {
  const choices = el("div", { className: "choices" });
  const hint = el("p", { className: "quiet", id: "pick-hint", role: "status" });
  const field = el("input", {
    type: "text",
    "data-first": "",
    "aria-label": `Name of the ${model.noun}`,
    "aria-describedby": "pick-hint",
    placeholder: `Find a ${model.noun}`,
    autocomplete: "off",
  });
  const draw = () => {
    const name = field.value.trim();
    const words = wordsOf(name);
    const isNamed = (one) => one.name.toLocaleLowerCase() === name.toLocaleLowerCase();
    const found = model.state.classes
      .filter((one) => !without.includes(one.number))
      .filter((one) => words.every((word) => wordsOf(`${one.name} ${one.suggested}`).join(" ").includes(word)))
      .sort((a, b) => isNamed(b) - isNamed(a) || b.rows - a.rows);
    const taken = name && (found.length === 1 || isNamed(found[0] ?? { name: "" })) ? found[0] : null;
    const isFree = fresh && name && !model.state.classes.some((one) => one.name === name);
    hint.textContent = taken
      ? `Enter takes ${taken.name}.`
      : found.length
        ? `${count(found.length, model.noun)}: type a part of a name, or choose with the arrow keys.`
        : isFree
          ? `No ${model.noun} matches. You can make a new one:`
          : `No ${model.noun} matches.`;
    choices.replaceChildren(
      ...found.slice(0, 100).map((one) =>
        el(
          "button",
          {
            className: "choice",
            data: one === taken ? { taken: "true" } : {},
            onclick: run(() => chosen(one.number)),
          },
          swatch(one.number),
          one.name,
          one.suggested ? el("span", { className: "hint" }, one.suggested) : null,
          el("span", { className: "quiet" }, count(one.rows, "row")),
        ),
      ),
      ...(isFree
        ? [el("button", { className: "choice fresh", onclick: run(() => fresh(name)) }, `Make a new ${model.noun} “${name}”`)]
        : []),
    );
  };
  field.oninput = draw;
  field.onkeydown = (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      choices.querySelector("[data-taken]")?.click();
    }
    if (event.key === "ArrowDown") {
      event.preventDefault();
      choices.querySelector("button")?.focus();
    }
  };
  choices.onkeydown = (event) => {
    const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (next) {
      event.preventDefault();
      (document.activeElement[next] ?? field).focus();
    }
  };
  draw();
  open(title, [field, hint, choices], [], "Cancel");
}

export const askMove = (rows) =>
  pick(`Move ${count(rows.length, "row")} to…`, (to) => move(rows, to), { fresh: (name) => moveToNew(rows, name) });
export const askMergeInto = (number) =>
  pick(`Merge ${model.name(number)} into…`, (into) => mergeInto(into, number), { without: [number] });

/** Merge, and show the class that the other became part of. */
async function mergeInto(into, number) {
  if (!(await merge([into, number]))) return;
  model.show(into);
  byId("detail-title").focus();
}

export function askMerge(numbers) {
  const classes = numbers
    .map((number) => model.byNumber.get(number))
    .sort((a, b) => b.known - a.known || b.rows - a.rows);
  const total = classes.reduce((sum, one) => sum + one.rows, 0);
  const options = classes.map((one, k) =>
    el(
      "label",
      { className: "choice field" },
      el("input", {
        type: "radio",
        name: "keeps",
        value: one.number,
        checked: k === 0,
        ...(k === 0 ? { "data-first": "" } : {}),
      }),
      swatch(one.number),
      one.name,
      el("span", { className: "quiet" }, count(one.rows, "row")),
    ),
  );
  open(
    `Merge ${count(numbers.length, model.noun)}`,
    [
      el("p", {}, `They become one ${model.noun} of ${count(total, "row")}. Which name stays?`),
      el("div", { className: "choices" }, ...options),
    ],
    [
      el(
        "button",
        {
          className: "primary",
          onclick: run(async () => {
            const into = Number(dialog.querySelector("input:checked").value);
            await merge([into, ...numbers.filter((number) => number !== into)]);
            document.querySelector(`#class-list li[data-number="${into}"] .class`)?.focus(); // the bar is gone
          }),
        },
        "Merge",
      ),
    ],
  );
}

export function askSplit(number) {
  const field = el("input", {
    type: "number",
    min: 2,
    max: 20,
    value: 2,
    "data-first": "",
    "aria-label": "Number of parts",
  });
  const go = run(() => split(number, Number(field.value)));
  open(
    `Split ${model.name(number)}`,
    [
      el("p", {}, "Its rows are clustered by k-means. The largest part keeps the name."),
      el("label", { className: "field" }, "Parts", field),
    ],
    [el("button", { className: "primary", onclick: go }, "Split")],
  );
}

export function askExport() {
  const formats = [
    ["csv", "CSV", "one line per row, for spreadsheets"],
    ["parquet", "Parquet", "typed columns"],
    ["jsonl", "JSON lines", "one object per row"],
    ["label-studio", "Label Studio", "tasks with the class as prediction"],
  ];
  const links = formats.map(([form, name, what]) =>
    el(
      "button",
      { className: "choice", onclick: run(() => download(form)) },
      name,
      el("span", { className: "quiet" }, what),
    ),
  );
  if (model.run.shows === "images")
    links.push(
      el(
        "button",
        { className: "choice", onclick: run(imageFolders) },
        "Image folders",
        el("span", { className: "quiet" }, "one folder per class, inside the run folder"),
      ),
    );
  open("Export decisions", [
    el("p", {}, "Every row with its final label, text, path and metadata columns; junk has no label."),
    el("div", { className: "choices" }, ...links),
  ]);
}

function download(form) {
  const link = el("a", { href: `/api/export/${form}`, download: "" });
  document.body.append(link);
  link.click();
  link.remove();
  say("The download has started.");
}

async function imageFolders() {
  say("Writing the images…");
  try {
    const { folder, written, left_out } = await change("/api/export/images");
    const reasons = Object.entries(left_out).map(([reason, n]) => `; ${n} left out: ${reason}`);
    say(`${count(written, "image")} in ${folder}${reasons.join("")}`, { seconds: 12 });
  } catch (error) {
    say(error.message, { bad: true });
  }
}

export function askRefit() {
  const { classes, junk } = model.state;
  const reviewed = classes.filter((one) => one.reviewed).length;
  const labelled = reviewed
    ? `Rows moved by hand, and the 50 most confident rows of each of ${count(reviewed, model.noun)} that you renamed, accepted, merged or split, are used as labels.`
    : "Rows moved by hand are used as labels. You have not renamed, accepted, merged or split any yet.";
  const left = junk ? ` Junk (${count(junk, "row")}) is excluded.` : "";
  const n = classes.filter((one) => one.rows).length;
  const start = run(async () => {
    try {
      await change("/api/refit", { version: model.state.version });
      say("Refit started. You can continue working.");
    } catch (error) {
      say(error.message, { bad: true });
    }
  });
  open(
    "Refit with my decisions",
    [
      el("p", {}, labelled + left),
      el(
        "p",
        {},
        `The refit uses ${count(n, model.noun)} and the hyperparameters of the run. It runs in the background and creates a new version; the current one is kept.`,
      ),
    ],
    [el("button", { className: "primary", "data-first": "", onclick: start }, "Refit")],
  );
}

const keys = () => [
  ["/", `find a ${model.noun}`],
  ["S", "search by words or by meaning"],
  ["F", "filters: charts of metadata columns"],
  ["T", `${model.nouns} over time`],
  ["↑ ↓ ← →", `move through ${model.nouns}, rows, charts, or the map`],
  ["Space", "select the row; with Shift, all in between"],
  ["Enter", "all rows by their similarity to this row"],
  ["N", "all rows by their similarity to the selected rows"],
  ["M", "move the selected rows"],
  ["X", "mark them as junk"],
  ["Esc", "clear the selection"],
  ["R", `rename the ${model.noun}`],
  ["A", "accept it"],
  ["D", "split it"],
  ["G", "merge it into another"],
  ["L", "lasso on the map; or hold Shift"],
  ["Q", "what to label next: suggested rows, one after the other"],
  ["C", `the tree of the ${model.nouns}`],
  ["H", "history: all decisions, and what a refit changed"],
  ["+ − 0", "zoom the map, and show all"],
  ["Ctrl Z", "undo"],
  ["Ctrl Y", "redo"],
  ["?", "this list"],
];

export function showHelp() {
  open("Keys", [
    el("p", {}, "Every decision is on disk before the page says “Saved”."),
    el(
      "div",
      { className: "keys" },
      ...keys().flatMap(([key, what]) => [
        el("span", {}, ...key.split(" ").map((one) => el("kbd", {}, one))),
        el("span", {}, what),
      ]),
    ),
  ]);
}
