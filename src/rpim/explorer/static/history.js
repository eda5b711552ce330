// The history: every decision about the version that is shown and those it was refitted from, and what each refit changed.

import { json } from "/static/api.js";
import { byId, count, el } from "/static/dom.js";
import { model } from "/static/model.js";

const box = byId("history-list");
let turn = 0; // answers for what was shown before are dropped

export function hideHistory() {
  turn++;
  box.hidden = true;
  box.replaceChildren();
}

export async function showHistory() {
  const mine = ++turn;
  box.hidden = false;
  try {
    const found = await json("/api/history");
    if (mine !== turn) return;
    const place = box.scrollTop;
    box.replaceChildren(...found.map(section));
    box.scrollTop = place;
  } catch (error) {
    if (mine === turn) box.replaceChildren(el("p", { className: "empty" }, error.message));
  }
}

const when = (made) => new Date(made).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

function section({ version, created, decisions, changes }) {
  return el(
    "section",
    { className: "past" },
    el("h3", {}, version ? `Version ${version}` : "The run", el("span", { className: "quiet" }, ` ${when(created)}`)),
    changes ? whatChanged(changes) : null,
    decisions.length
      ? el("ol", { "aria-label": "Decisions, latest first" }, ...[...decisions].reverse().map(line))
      : el("p", { className: "quiet" }, "No decisions yet."),
  );
}

function line({ made, description, undone }) {
  return el(
    "li",
    { className: undone ? "undone" : "" },
    el("span", { className: "grow" }, description),
    undone ? el("span", { className: "badge" }, "undone") : null,
    el("time", { className: "quiet", dateTime: made }, when(made)),
  );
}

function whatChanged({ moved, compared, appeared, vanished, moves }) {
  const named = (title, names) => (names.length ? el("p", {}, el("b", {}, `${title}: `), names.join(", ")) : null);
  const cells = (kind, values) => values.map((value) => el(kind, kind === "th" ? { scope: "col" } : {}, value));
  return el(
    "div",
    { className: "changes" },
    el("p", {}, `The refit changed the ${model.noun} of ${moved.toLocaleString("en")} of ${count(compared, "row")}.`),
    named(model.noun === "group" ? "Added groups" : "New classes", appeared),
    named(`Removed ${model.nouns}`, vanished),
    moves.length
      ? el(
          "table",
          {},
          el("thead", {}, el("tr", {}, ...cells("th", ["From", "To", "Rows"]))),
          el(
            "tbody",
            {},
            ...moves.map((one) => el("tr", {}, ...cells("td", [one.from, one.to, one.rows.toLocaleString("en")]))),
          ),
        )
      : null,
  );
}
