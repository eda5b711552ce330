// The rows of a class, of the selection, or of a search: a grid with keyboard navigation.

import { json } from "/static/api.js";
import { saidOf } from "/static/colouring.js";
import { css, ofClass } from "/static/colours.js";
import { byId, el, percent } from "/static/dom.js";
import { model } from "/static/model.js";

const box = byId("items");
const PAGE = 60;
let turn = 0; // of what is shown: answers for what was shown before are dropped
let source = null; // {fetch(start) -> {total, items}, empty}
let loaded = 0;
let total = 0;
let loading = false;
let last = null; // the row that was selected last, where Shift begins

export const sources = {
  ofClass: (number, order) => ({
    empty: model.mask
      ? "No such row passes the filters."
      : order === "nearby"
        ? "No other rows are near."
        : `This ${model.noun} has no rows.`,
    fetch: (start) => json(`/api/classes/${number}/items?order=${order}&start=${start}&count=${PAGE}${filterPart()}`),
  }),
  rows: (rows, empty = "Nothing is selected.", about = () => null) => ({
    empty,
    about,
    fetch: (start) => {
      const some = rows.slice(start, start + PAGE);
      return some.length
        ? json(`/api/items?rows=${some.join(",")}`).then(({ items }) => ({ total: rows.length, items }))
        : { total: rows.length, items: [] };
    },
  }),
};

/** The filters of the charts, for a list that the server makes. */
export const filterPart = () => (model.filters ? `&filters=${encodeURIComponent(model.filters)}` : "");

export async function showItems(from, { keep = false } = {}) {
  source = from;
  const mine = ++turn;
  loading = false;
  const [place, want] = keep ? [box.scrollTop, Math.max(loaded, PAGE)] : [0, PAGE];
  let fresh = [];
  try {
    do {
      const part = await source.fetch(fresh.length);
      if (mine !== turn) return;
      total = part.total;
      fresh = fresh.concat(part.items);
      if (!part.items.length) break;
    } while (fresh.length < Math.min(want, total));
  } catch (error) {
    if (mine === turn) box.replaceChildren(el("p", { className: "empty" }, error.message));
    return;
  }
  loaded = fresh.length;
  const focus = keep ? focused() : null;
  const at = cards().indexOf(focus ?? box.querySelector('[tabindex="0"]'));
  box.classList.toggle("pictures", model.run.shows === "images");
  box.replaceChildren(...fresh.map(card));
  if (!fresh.length) box.append(el("p", { className: "empty" }, source.empty));
  box.scrollTop = place;
  // The same row, or the one that took its place.
  const all = cards();
  const next = (focus && box.querySelector(`[data-row="${focus.dataset.row}"]`)) ?? all[Math.min(keep ? at : 0, all.length - 1)];
  if (all.length) (next ?? all[0]).tabIndex = 0;
  if (focus) focusItems();
}

/** Focus the current row; without rows, the title of the pane. */
export function focusItems() {
  (box.querySelector('[tabindex="0"]') ?? byId("detail-title")).focus();
}

async function more() {
  if (loading || loaded >= total || !source) return;
  loading = true;
  const mine = turn;
  const { items } = await source.fetch(loaded).catch(() => ({ items: [] }));
  if (mine !== turn) return;
  box.append(...items.map(card));
  loaded += items.length;
  loading = false;
}

/** The image of a row; null if rows have none. */
export function picture(item, size = 160) {
  if (model.run.shows !== "images") return null;
  return el(
    "div",
    { className: "frame" },
    el("img", {
      src: `/api/pictures/${item.row}?size=${size}`,
      alt: item.id,
      loading: "lazy",
      onerror: (event) => event.target.replaceWith("not found"),
    }),
  );
}

function card(item) {
  const frame = picture(item);
  const elsewhere = item.class !== model.open || item.junk;
  return el(
    "div",
    {
      className: "item",
      role: "option",
      tabIndex: -1,
      "aria-selected": String(model.selected.has(item.row)),
      data: { row: item.row },
    },
    frame,
    el("div", { className: "text" }, item.text ?? item.id),
    el(
      "div",
      { className: "about" },
      elsewhere
        ? el("span", { className: "swatch", style: { background: css(ofClass(item.junk ? -1 : item.class)) } })
        : null,
      elsewhere ? el("span", {}, item.junk ? "junk" : model.name(item.class)) : null,
      source?.about?.(item.row) ? el("span", {}, source.about(item.row)) : null,
      el("span", {}, `${percent(item.confidence)} confidence`),
      item.confidence < 0.9 && item.runner_up !== null && !item.by_hand ? el("span", {}, `or ${model.name(item.runner_up)}`) : null,
      item.labelled ? el("span", { className: "badge" }, "labelled") : null,
      item.by_hand ? el("span", { className: "badge good" }, "by hand") : null,
      ...saidOf(item, frame ? 1 : 3).map((said) => el("span", { className: "said", title: saidOf(item).join("\n") }, said)),
    ),
  );
}

const cards = () => [...box.querySelectorAll(".item")];
export const focused = () => document.activeElement?.closest?.("#items .item") ?? null;

function choose(target, event) {
  const row = Number(target.dataset.row);
  if (event.shiftKey && last !== null) {
    const all = cards().map((one) => Number(one.dataset.row));
    const [from, to] = [all.indexOf(last), all.indexOf(row)].sort((a, b) => a - b);
    if (from >= 0) model.select(all.slice(from, to + 1), "add");
  } else model.select([row], "toggle");
  last = row;
}

box.addEventListener("click", (event) => {
  const target = event.target.closest(".item");
  if (!target) return;
  focusOn(target);
  choose(target, event);
});
box.addEventListener("dblclick", (event) => {
  const target = event.target.closest(".item");
  if (target) box.dispatchEvent(new CustomEvent("like", { detail: Number(target.dataset.row) }));
});

function focusOn(target) {
  for (const one of box.querySelectorAll('[tabindex="0"]')) one.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

box.addEventListener("keydown", (event) => {
  const target = focused();
  if (!target) return;
  const all = cards();
  const columns = all.findIndex((one) => one.offsetTop > all[0].offsetTop);
  const down = columns < 1 ? all.length : columns;
  const at = all.indexOf(target);
  const to = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowDown: at + down,
    ArrowUp: at - down,
    Home: 0,
    End: all.length - 1,
  }[event.key];
  if (to !== undefined) {
    event.preventDefault();
    if (to > all.length - 12) more();
    if (all[to]) {
      focusOn(all[to]);
      if (event.shiftKey) model.select([Number(all[to].dataset.row)], "add");
    }
  } else if (event.key === " ") {
    event.preventDefault();
    choose(target, event);
  } else if (event.key === "Enter") {
    event.preventDefault();
    box.dispatchEvent(new CustomEvent("like", { detail: Number(target.dataset.row) }));
  }
});
box.addEventListener("scroll", () => {
  if (box.scrollTop + box.clientHeight > box.scrollHeight - 600) more();
});

model.on("colour", () => {
  if (box.querySelector(".said")) showItems(source, { keep: true }); // what colours the map comes first
});
model.on("selection", () => {
  for (const one of cards()) one.setAttribute("aria-selected", model.selected.has(Number(one.dataset.row)));
});
