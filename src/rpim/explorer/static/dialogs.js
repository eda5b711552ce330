// The dialogs, in the browser's dialog element, which handles focus and Escape.

import { change, json } from "/static/api.js";
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

const run = (work) => async () => {
  dialog.close();
  await work();
};
const swatch = (number) => el("span", { className: "swatch", style: { background: css(ofClass(number)) } });

/** Pick a class by typing a part of its name; with `fresh`, an unused name creates a new class. */
function pick(title, chosen, { fresh = null, without = [] } = {}) {
  const choices = el("div", { className: "choices" });
  const field = el("input", {
    type: "text",
    "data-first": "",
    "aria-label": "Name of the class",
    placeholder: fresh ? "Find a class, or name a new one" : "Find a class",
    autocomplete: "off",
  });
  const draw = () => {
    const words = field.value.trim().toLocaleLowerCase();
    const found = model.state.classes
      .filter((one) => !without.includes(one.number) && one.name.toLocaleLowerCase().includes(words))
      .sort((a, b) => b.rows - a.rows);
    const name = field.value.trim();
    const isNew = fresh && name && !model.state.classes.some((one) => one.name === name);
    choices.replaceChildren(
      ...(isNew
        ? [el("button", { className: "choice", onclick: run(() => fresh(name)) }, `New class “${name}”`)]
        : []),
      ...found
        .slice(0, 100)
        .map((one) =>
          el(
            "button",
            { className: "choice", onclick: run(() => chosen(one.number)) },
            swatch(one.number),
            one.name,
            el("span", { className: "quiet" }, count(one.rows, "row")),
          ),
        ),
    );
  };
  field.oninput = draw;
  field.onkeydown = (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      choices.querySelector("button")?.click();
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
  open(title, [field, choices], [], "Cancel");
}

export const askMove = (rows) =>
  pick(`Move ${count(rows.length, "row")} to…`, (to) => move(rows, to), { fresh: (name) => moveToNew(rows, name) });
export const askMergeInto = (number) =>
  pick(`Merge ${model.name(number)} into…`, (into) => merge([into, number]), { without: [number] });

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
    `Merge ${count(numbers.length, "class")}`,
    [
      el("p", {}, `They become one class of ${count(total, "row")}. Which name stays?`),
      el("div", { className: "choices" }, ...options),
    ],
    [
      el(
        "button",
        {
          className: "primary",
          onclick: run(() => {
            const into = Number(dialog.querySelector("input:checked").value);
            return merge([into, ...numbers.filter((number) => number !== into)]);
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
  field.onkeydown = (event) => {
    if (event.key === "Enter") go();
  };
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
    el("p", {}, "Every row with its final label; junk has no label."),
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
    const { folder, written, missing } = await change("/api/export/images");
    say(`${count(written, "image")} in ${folder}${missing ? `; ${missing} were not found` : ""}`, { seconds: 12 });
  } catch (error) {
    say(error.message, { bad: true });
  }
}

export function askRefit() {
  const { classes, junk } = model.state;
  const reviewed = classes.filter((one) => one.reviewed).length;
  const labelled = reviewed
    ? `Rows moved by hand, and the 50 most confident rows of each of ${count(reviewed, "class")} that you renamed, accepted, merged or split, are used as labels.`
    : "Rows moved by hand are used as labels. You have not renamed, accepted, merged or split a class yet.";
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
        `The refit uses ${count(n, "class")} and the hyperparameters of the run. It runs in the background and creates a new version; the current one is kept.`,
      ),
    ],
    [el("button", { className: "primary", "data-first": "", onclick: start }, "Refit")],
  );
}

export async function showChanges(version) {
  const found = await json(`/api/changes?version=${version}`).catch((error) => ({ problem: error.message }));
  if (found.problem) {
    say(found.problem, { bad: true });
    return;
  }
  const named = (title, names) => (names.length ? el("p", {}, el("b", {}, `${title}: `), names.join(", ")) : null);
  open(
    `Changes in version ${version}`,
    [
      el(
        "p",
        {},
        `${found.moved.toLocaleString("en")} of ${count(found.compared, "row")} changed their class.`,
      ),
      named("New classes", found.appeared),
      named("Removed classes", found.vanished),
      found.moves.length
        ? el(
            "table",
            {},
            el("thead", {}, el("tr", {}, ...["From", "To", "Rows"].map((name) => el("th", { scope: "col" }, name)))),
            el(
              "tbody",
              {},
              ...found.moves.map((one) =>
                el("tr", {}, el("td", {}, one.from), el("td", {}, one.to), el("td", {}, one.rows.toLocaleString("en"))),
              ),
            ),
          )
        : null,
    ].filter(Boolean),
  );
}

const KEYS = [
  ["/", "find a class"],
  ["S", "search in texts"],
  ["↑ ↓ ← →", "move through classes, rows, or the map"],
  ["Space", "select the row; with Shift, all in between"],
  ["Enter", "show similar rows"],
  ["M", "move the selected rows"],
  ["X", "mark them as junk"],
  ["Esc", "clear the selection"],
  ["R", "rename the class"],
  ["A", "accept it"],
  ["D", "split it"],
  ["G", "merge it into another"],
  ["L", "lasso on the map; or hold Shift"],
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
      ...KEYS.flatMap(([key, what]) => [
        el("span", {}, ...key.split(" ").map((one) => el("kbd", {}, one))),
        el("span", {}, what),
      ]),
    ),
  ]);
}
