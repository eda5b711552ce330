// Label issues: each with the class that the members of the committee suggest instead.

import { keepLabel, move } from "/static/actions.js";
import { json } from "/static/api.js";
import { css, ofClass } from "/static/colours.js";
import { byId, el, percent } from "/static/dom.js";
import { filterPart, picture } from "/static/items.js";
import { model } from "/static/model.js";

const list = byId("label-issues");
const PAGE = 60;
let turn = 0; // answers for what was shown before are dropped
let wanted = PAGE;

export function hideLabelIssues() {
  turn++;
  list.hidden = true;
  list.replaceChildren();
}

export async function showLabelIssues({ keep = false } = {}) {
  const mine = ++turn;
  list.hidden = false;
  if (!keep) wanted = PAGE;
  try {
    const items = [];
    let total = 0;
    do {
      const part = await json(`/api/label-issues?start=${items.length}&count=${PAGE}${filterPart()}`);
      if (mine !== turn) return;
      total = part.total;
      if (!part.items.length) break;
      items.push(...part.items);
    } while (items.length < Math.min(wanted, total));
    draw(items, total);
  } catch (error) {
    if (mine === turn) list.replaceChildren(el("li", { className: "empty" }, error.message));
  }
}

/** Draw the list; the focus stays on its button, or moves to the next row's. */
function draw(items, total) {
  const held = list.contains(document.activeElement) ? document.activeElement : null;
  const [row, act] = [held?.closest("li")?.dataset.row, held?.dataset.act];
  const at = [...list.children].findIndex((one) => one.contains(held));
  const place = list.scrollTop;
  list.replaceChildren(...items.map(card));
  if (!items.length) list.append(el("li", { className: "empty" }, model.mask ? "No label issue passes the filters." : "No label issues left."));
  if (items.length < total) list.append(el("li", {}, el("button", { data: { act: "more" }, onclick: more }, "Show more")));
  list.scrollTop = place;
  if (!held) return;
  const next = list.querySelector(`li[data-row="${row}"]`) ?? list.children[Math.min(at, items.length - 1)];
  (next?.querySelector(`[data-act="${act}"]`) ?? next?.querySelector("button") ?? byId("detail-title")).focus();
}

function more() {
  wanted += PAGE;
  showLabelIssues({ keep: true });
}

function card(item) {
  const [given, suggested] = [model.name(item.class), model.name(item.suggested)];
  const named = (what, number) =>
    el(
      "span",
      { className: "field" },
      el("span", { className: "quiet" }, what),
      el("span", { className: "swatch", style: { background: css(ofClass(number)) } }),
      el("b", {}, model.name(number)),
    );
  const text = item.text ?? item.id;
  const about = text.slice(0, 80);
  return el(
    "li",
    { className: "item label-issue", data: { row: item.row } },
    picture(item),
    el(
      "div",
      { className: "grow" },
      el("div", { className: "text" }, text),
      el(
        "div",
        { className: "labels" },
        named("Label", item.class),
        named("Suggested", item.suggested),
        el(
          "span",
          { title: "Probability of the label according to the members that did not see it" },
          `label quality ${percent(item.label_quality)}`,
        ),
      ),
      el(
        "div",
        { className: "actions" },
        el(
          "button",
          {
            className: "primary",
            data: { act: "accept" },
            "aria-label": `Accept suggestion: ${suggested} instead of ${given} for ${about}`,
            onclick: () => move([item.row], item.suggested),
          },
          "Accept suggestion",
        ),
        el(
          "button",
          {
            data: { act: "keep" },
            "aria-label": `Keep label: ${given} for ${about}`,
            onclick: () => keepLabel(item.row, item.class),
          },
          "Keep label",
        ),
      ),
    ),
  );
}
