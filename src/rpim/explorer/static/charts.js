// Charts of metadata columns: each shows the rows that pass the filters of the others, and filters by its bins.

import { json } from "/static/api.js";
import { byId, count, el, say } from "/static/dom.js";
import { model } from "/static/model.js";

const [WIDTH, HEIGHT, GAP] = [240, 72, 1];
const panel = byId("charts");
const list = byId("chart-list");
const toggle = byId("toggle-charts");
const chosen = new Map(); // key -> set of bins
let charts = [];
let turn = 0; // answers for filters that have changed are dropped

const asText = () =>
  chosen.size ? JSON.stringify(Object.fromEntries([...chosen].map(([key, bins]) => [key, [...bins].sort((a, b) => a - b)]))) : "";

async function load() {
  const mine = ++turn;
  const filters = asText();
  try {
    const answer = await json(`/api/charts?filters=${encodeURIComponent(filters)}`);
    if (mine !== turn) return;
    charts = answer.charts;
    if (filters !== model.filters || filters) model.filter(filters, answer.mask && unpacked(answer.mask));
    draw(answer.rows);
  } catch (error) {
    say(error.message, { bad: true });
  }
}

/** Bits in base64, the first row in the lowest bit. */
function unpacked(text) {
  const bytes = atob(text);
  const mask = new Uint8Array(model.codes.length);
  for (let row = 0; row < mask.length; row++) mask[row] = (bytes.charCodeAt(row >> 3) >> (row & 7)) & 1;
  return mask;
}

function choose(key, bins) {
  if (bins.size) chosen.set(key, bins);
  else chosen.delete(key);
  load();
}

function draw(rows) {
  const held = list.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = list.scrollLeft;
  const lists = new Map([...list.querySelectorAll(".bars")].map((one) => [one.closest(".chart").dataset.key, one.scrollTop]));
  toggle.hidden = false;
  list.replaceChildren(...charts.map(chart));
  list.scrollLeft = scrolled;
  for (const one of list.querySelectorAll(".bars")) one.scrollTop = lists.get(one.closest(".chart").dataset.key) ?? 0;
  if (held?.id) (byId(held.id) ?? byId("clear-filters")).focus({ preventScroll: true });
  byId("passing").textContent = model.filters
    ? `${rows.toLocaleString("en")} of ${count(model.run.rows, "row")} pass`
    : count(model.run.rows, "row");
  byId("clear-filters").disabled = !chosen.size;
  byId("show-over-time").hidden = !dateColumns().length;
  toggle.textContent = chosen.size ? `Filters (${chosen.size})` : "Filters";
}

export const dateColumns = () => charts.filter((one) => one.kind === "dates");

function chart(one) {
  const bins = chosen.get(one.key);
  const missing = one.labels.length;
  return el(
    "div",
    { className: "chart", data: { key: one.key } },
    el(
      "div",
      { className: "chart-title" },
      el("h4", { id: `title-${one.key}`, title: one.title }, one.title),
      bins
        ? el(
            "button",
            { id: `clear-${one.key}`, className: "small", "aria-label": `Clear the filter of ${one.title}`, onclick: () => choose(one.key, new Set()) },
            "Clear",
          )
        : null,
    ),
    one.kind === "values" ? valueBars(one) : histogram(one),
    one.kind !== "values" && one.all[missing]
      ? el("div", { className: "bars single" }, bar(one, missing, Math.max(...one.all)))
      : null,
  );
}

function toggleBin(key, bin) {
  const bins = new Set(chosen.get(key));
  bins.has(bin) ? bins.delete(bin) : bins.add(bin);
  choose(key, bins);
}

/** A category: a button with its share as a bar behind it. */
function bar(one, bin, most) {
  const isOn = chosen.get(one.key)?.has(bin) ?? false;
  const name = one.labels[bin] ?? "none";
  return el(
    "button",
    {
      id: `bin-${one.key}-${bin}`,
      className: "bar",
      "aria-pressed": String(isOn),
      title: `${name}: ${one.rows[bin].toLocaleString("en")} of ${count(one.all[bin], "row")}`,
      data: { out: String(chosen.has(one.key) && !isOn) },
      onclick: () => toggleBin(one.key, bin),
    },
    el("span", { className: "of-all", style: { width: `${(100 * one.all[bin]) / most}%` } }),
    el("span", { className: "of-passing", style: { width: `${(100 * one.rows[bin]) / most}%` } }),
    el("span", { className: "name" }, name),
    el("span", { className: "number" }, one.rows[bin].toLocaleString("en")),
  );
}

function valueBars(one) {
  const most = Math.max(...one.all, 1);
  const shown = one.all.map((rows, bin) => [rows, bin]).filter(([rows]) => rows > 0);
  return el(
    "div",
    { className: "bars", role: "group", "aria-labelledby": `title-${one.key}` },
    ...shown.map(([, bin]) => bar(one, bin, most)),
  );
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Bars side by side: drag over them, or use the arrow keys with Shift, to choose a range. */
function histogram(one) {
  const n = one.labels.length;
  const bins = chosen.get(one.key);
  const most = Math.max(...one.all.slice(0, n), 1);
  const wide = WIDTH / n;
  const gap = wide > 4 ? GAP : 0;
  const rect = (bin, rows, kind) =>
    svg("rect", {
      class: kind,
      x: (bin * wide + gap / 2).toFixed(2),
      width: (wide - gap).toFixed(2),
      y: (HEIGHT - (HEIGHT * rows) / most).toFixed(2),
      height: ((HEIGHT * rows) / most).toFixed(2),
    });
  const says = (bin) => `${one.labels[bin]}: ${one.rows[bin].toLocaleString("en")} of ${count(one.all[bin], "row")}`;
  const options = one.labels.map((_, bin) => {
    const isOut = bins && !bins.has(bin);
    return svg(
      "g",
      {
        id: `bin-${one.key}-${bin}`,
        role: "option",
        "aria-selected": String(bins?.has(bin) ?? false),
        "aria-label": says(bin),
        class: isOut ? "bin out" : "bin",
      },
      svg("rect", { class: "hit", x: bin * wide, width: wide, y: 0, height: HEIGHT }),
      rect(bin, one.all[bin], "of-all"),
      rect(bin, one.rows[bin], "of-passing"),
    );
  });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "false" }, ...options);
  const ends = el("div", { className: "ends" });
  const tell = (bin) =>
    bin === null
      ? ends.replaceChildren(...(n > 1 ? [el("span", {}, start(one)), el("span", {}, end(one))] : [el("span", {}, one.labels[0] ?? "")]))
      : ends.replaceChildren(el("span", {}, says(bin)));
  tell(null);
  const box = el(
    "div",
    {
      id: `histogram-${one.key}`,
      className: "histogram",
      role: "listbox",
      tabIndex: 0,
      "aria-multiselectable": "true",
      "aria-labelledby": `title-${one.key}`,
      "aria-orientation": "horizontal",
    },
    picture,
  );
  const mark = (from, to) => {
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    options.forEach((option, bin) => option.classList.toggle("out", bin < low || bin > high));
    tell(to);
  };
  const range = (from, to) => {
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    const isSame = bins && bins.size === high - low + 1 && bins.has(low) && bins.has(high);
    choose(one.key, isSame ? new Set() : new Set(Array.from({ length: high - low + 1 }, (_, k) => low + k)));
  };
  byPointer(box, n, { mark, range, tell });
  byKeys(box, one, options, { mark, range, tell });
  return el("div", {}, box, ends);
}

const start = (one) => one.labels[0].replace(/ to .*/, "").replace("week of ", "");
const end = (one) => one.labels.at(-1).replace(/.* to /, "").replace("week of ", "");

function byPointer(box, n, { mark, range, tell }) {
  let from = null;
  const at = (event) => {
    const { left, width } = box.getBoundingClientRect();
    return Math.max(0, Math.min(n - 1, Math.floor((n * (event.clientX - left)) / width)));
  };
  box.onpointerdown = (event) => {
    box.setPointerCapture(event.pointerId);
    from = at(event);
    mark(from, from);
  };
  box.onpointermove = (event) => (from === null ? tell(at(event)) : mark(from, at(event)));
  box.onpointerup = (event) => {
    if (from !== null) range(from, at(event));
    from = null;
  };
  box.onpointercancel = () => {
    from = null;
    load();
  };
  box.onpointerleave = () => {
    if (from === null) tell(null);
  };
}

const cursors = new Map(); // of each histogram: [where Shift began, the bin with the cursor]

function byKeys(box, one, options, { mark, range, tell }) {
  const place = () => cursors.get(one.key) ?? [0, 0];
  const point = () => {
    const [, bin] = place();
    box.setAttribute("aria-activedescendant", options[bin].id);
    options.forEach((option, k) => option.classList.toggle("cursor", k === bin));
    tell(bin);
  };
  box.onfocus = () => box.matches(":focus-visible") && point();
  box.onblur = () => {
    options.forEach((option) => option.classList.remove("cursor"));
    tell(null);
  };
  box.onkeydown = (event) => {
    const [from, bin] = place();
    const last = options.length - 1;
    const to = { ArrowRight: Math.min(last, bin + 1), ArrowLeft: Math.max(0, bin - 1), Home: 0, End: last }[event.key];
    if (to !== undefined) {
      cursors.set(one.key, event.shiftKey ? [from, to] : [to, to]);
      if (event.shiftKey) mark(from, to);
      point();
    } else if (event.key === "Enter" || event.key === " ") range(from, bin);
    else if (event.key === "Escape" && chosen.has(one.key)) choose(one.key, new Set());
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
}

export function toggleCharts() {
  if (toggle.hidden) return;
  setOpen(panel.hidden);
  if (!panel.hidden) (list.querySelector("button, [tabindex]") ?? toggle).focus();
}

function setOpen(is) {
  panel.hidden = !is;
  toggle.setAttribute("aria-expanded", String(is));
  localStorage.setItem("rpim-charts", is ? "open" : "closed");
}
toggle.onclick = () => setOpen(panel.hidden);
byId("clear-filters").onclick = () => {
  chosen.clear();
  load();
  toggle.focus();
};

model.on("run", async () => {
  await load();
  const kept = localStorage.getItem("rpim-charts");
  const hasOwn = charts.some((one) => one.key !== "confidence");
  setOpen(kept ? kept === "open" : hasOwn && innerWidth > 900 && innerHeight > 700);
});
let version = null;
model.on("state", () => {
  if (version !== null && version !== model.state.version) load(); // the confidence is another
  version = model.state.version;
});
