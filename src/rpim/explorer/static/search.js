// The search field: words in texts and ids as they are typed, or meaning once Enter is pressed.

import { numbers } from "/static/api.js";
import { isShowing, show } from "/static/detail.js";
import { byId, later, say } from "/static/dom.js";
import { model } from "/static/model.js";
import { leaveRanked, rankByWords } from "/static/ranking.js";

export const search = byId("search");
const how = byId("search-how");
const byMeaning = () => how.value === "meaning";

const findWords = later(async () => {
  const words = search.value.trim();
  if (byMeaning()) return;
  try {
    const found = words ? await numbers(`/api/search?words=${encodeURIComponent(words)}`, Int32Array) : null;
    if (words !== search.value.trim() || byMeaning()) return;
    if (isShowing("ranked")) show({ kind: model.open === null ? "none" : "class" });
    model.found = found;
    tell();
    model.tell("search");
  } catch (error) {
    say(error.message, { bad: true });
  }
}, 200);

const matches = () => model.passing(Array.from(model.found));

function tell() {
  const n = !model.found || model.ranked ? null : matches().length;
  byId("found").textContent = n === null ? "" : `${n.toLocaleString("en")} found`;
  byId("select-found").hidden = !n;
}

async function findMeaning() {
  byId("found").textContent = "Searching… The first search loads the encoder.";
  search.setAttribute("aria-busy", "true");
  try {
    await rankByWords(search.value.trim());
    tell();
  } catch (error) {
    byId("found").textContent = error.message;
  }
  search.removeAttribute("aria-busy");
}

search.oninput = () => {
  if (!byMeaning()) findWords();
  else if (!search.value.trim()) clear();
};
search.onkeydown = (event) => {
  if (event.key !== "Enter" || !byMeaning()) return;
  event.preventDefault();
  findMeaning();
};

function clear() {
  byId("found").textContent = "";
  if (isShowing("ranked")) show({ kind: model.open === null ? "none" : "class" });
  else leaveRanked();
}

how.onchange = () => {
  search.placeholder = byMeaning() ? "Describe the rows, then press Enter" : "Search in texts and ids";
  clear();
  tell();
  if (!byMeaning()) findWords();
  search.focus();
};

byId("select-found").onclick = () => {
  model.select(matches());
  show({ kind: "selection" });
};
model.on("filter", tell);
