// Classes over time: which grow, and which are new since a day.

import { json } from "/static/api.js";
import { dateColumns, svg } from "/static/charts.js";
import { css, ofClass } from "/static/colours.js";
import { byId, el } from "/static/dom.js";
import { filterPart } from "/static/items.js";
import { model } from "/static/model.js";

const box = byId("over-time");
const STATUS = {
  new: ["appeared", "badge new", "No rows before this day"],
  gone: ["gone", "badge", "No rows since this day"],
  grows: ["grows", "badge good", "Its share grew by more than three standard errors"],
  shrinks: ["shrinks", "badge", "Its share shrank by more than three standard errors"],
};
let column = null;
let since = "";
let turn = 0; // answers for what was shown before are dropped

export const hasDates = () => dateColumns().length > 0;

export function hideOverTime() {
  turn++;
  box.hidden = true;
  box.replaceChildren();
}

export function overTimeHead() {
  const columns = dateColumns();
  if (!columns.some((one) => one.key === column)) [column, since] = [columns[0]?.key ?? null, ""];
  const choice = el(
    "select",
    {
      id: "time-column",
      "aria-label": "Column",
      onchange: (event) => {
        [column, since] = [event.target.value, ""];
        showOverTime();
      },
    },
    ...columns.map((one) => el("option", { value: one.key }, one.title)),
  );
  choice.value = column;
  const field = el("input", { id: "since", type: "date", value: since, "aria-label": "Since" });
  field.onchange = () => {
    since = field.value;
    showOverTime();
  };
  return el(
    "div",
    { className: "actions" },
    columns.length > 1 ? choice : null,
    el("label", { className: "field" }, "Before and since", field),
  );
}

export async function showOverTime() {
  const mine = ++turn;
  box.hidden = false;
  try {
    const found = await json(`/api/over-time?column=${encodeURIComponent(column)}&since=${encodeURIComponent(since)}${filterPart()}`);
    if (mine !== turn) return;
    const field = byId("since");
    if (field && document.activeElement !== field) field.value = found.since;
    draw(found);
  } catch (error) {
    if (mine === turn) box.replaceChildren(el("p", { className: "empty" }, error.message));
  }
}

function draw({ since: day, first, last, classes }) {
  const percent = (share) => (share === null ? "—" : `${(100 * share).toFixed(1)}%`);
  const most = Math.max(...classes.flatMap((one) => one.shares.filter((share) => share !== null)), 0.001);
  const line = (one) => {
    const [word, badge, title] = STATUS[one.status] ?? [];
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        el(
          "button",
          { className: "link", title: model.name(one.number), onclick: () => model.show(one.number) },
          el("span", { className: "swatch", style: { background: css(ofClass(one.number)) } }),
          el("span", { className: "name" }, model.title(one.number)),
        ),
        word ? el("span", { className: badge, title }, word) : null,
      ),
      el("td", {}, sparkline(one.shares, most)),
      el("td", { title: `${one.before} rows before ${day}` }, percent(one.share_before)),
      el("td", { title: `${one.since} rows since ${day}` }, percent(one.share_since)),
    );
  };
  const head = (name, title = "") => el("th", { scope: "col", title }, name);
  box.replaceChildren(
    el("p", { className: "quiet" }, `Shares of the rows from ${first} to ${last}, before ${day} and since; those that grow most first.`),
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, head(model.noun), head("share"), head("before"), head("since"))),
      el("tbody", {}, ...classes.map(line)),
    ),
  );
}

/** The share in each bin as a small bar; all classes have the same scale. */
function sparkline(shares, most) {
  const wide = 100 / shares.length;
  const bars = shares.map((share, bin) =>
    svg("rect", {
      x: (bin * wide).toFixed(2),
      width: Math.max(wide - 0.8, wide / 2).toFixed(2),
      y: (24 - (24 * (share ?? 0)) / most).toFixed(2),
      height: ((24 * (share ?? 0)) / most).toFixed(2),
    }),
  );
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars);
}
