// The tree of the classes: similar ones are under one node, where they can be merged.

import { json } from "/static/api.js";
import { css, ofClass } from "/static/colours.js";
import { askMerge } from "/static/dialogs.js";
import { byId, count, el } from "/static/dom.js";
import { model } from "/static/model.js";

const box = byId("tree");
let turn = 0; // answers for what was shown before are dropped
let wasOpen = new Map(); // what the user has opened or closed: the classes of a node -> whether it is open

export function hideTree() {
  turn++;
  box.hidden = true;
  box.replaceChildren();
}

export async function showTree() {
  const mine = ++turn;
  box.hidden = false;
  if (!box.childElementCount) box.replaceChildren(el("p", { className: "empty" }, "Building the tree…"));
  try {
    const found = await json("/api/tree", { timeout: 60000 }); // keywords of many texts take seconds
    if (mine === turn) draw(found);
  } catch (error) {
    if (mine === turn) box.replaceChildren(el("p", { className: "empty" }, error.message));
  }
}

const ROOT = "all";
const keyOf = (numbers) => [...numbers].sort((a, b) => a - b).join(" ");

/** Draw the tree; the scroll position, the focus and what is open are kept, also if classes below were merged. */
function draw({ numbers, merges, names, n_groups: groups }) {
  const place = box.scrollTop;
  const held = box.contains(document.activeElement) ? document.activeElement.dataset.node : null;
  const kept = (key) => keyOf(key.split(" ").map(Number).filter((number) => numbers.includes(number)));
  wasOpen = new Map([...wasOpen].map(([key, is]) => [key === ROOT ? key : kept(key), is]));
  const below = numbers.map((number) => [number]);
  const nodes = numbers.map(leaf);
  merges.forEach(([a, b], k) => {
    const node = numbers.length + k;
    below[node] = [...below[a], ...below[b]];
    const key = node === names.length - 1 ? ROOT : keyOf(below[node]);
    const isOpen = wasOpen.get(key) ?? node > names.length - groups;
    nodes[node] = branch(key, names[node], below[node], [nodes[a], nodes[b]], isOpen);
  });
  box.replaceChildren(el("ul", {}, nodes.at(-1)));
  box.scrollTop = place;
  if (held) (box.querySelector(`[data-node="${held}"]`) ?? box).focus();
}

function leaf(number) {
  const { name, suggested, rows } = model.byNumber.get(number) ?? { name: model.name(number), rows: 0 };
  return el(
    "li",
    {},
    el(
      "button",
      { className: "leaf", data: { node: number }, onclick: () => model.show(number) },
      el("span", { className: "swatch", style: { background: css(ofClass(number)) } }),
      el("span", { className: "name" }, name),
      suggested ? el("span", { className: "quiet hint" }, suggested) : null,
      el("span", { className: "quiet size" }, rows.toLocaleString("en")),
    ),
  );
}

function branch(key, name, numbers, children, isOpen) {
  const details = el(
    "details",
    { open: isOpen },
    el(
      "summary",
      { data: { node: key } },
      el("span", { className: "name" }, key === ROOT ? `All ${model.nouns}` : name),
      el("span", { className: "quiet size" }, count(numbers.length, model.noun)),
    ),
    key === ROOT
      ? null
      : el(
          "button",
          { className: "merge", data: { node: `merge ${key}` }, "aria-label": `Merge ${name}`, onclick: () => askMerge(numbers) },
          `Merge these ${count(numbers.length, model.noun)}…`,
        ),
    el("ul", {}, ...children),
  );
  details.addEventListener("toggle", () => details.open !== (wasOpen.get(key) ?? isOpen) && wasOpen.set(key, details.open));
  return el("li", {}, details);
}
