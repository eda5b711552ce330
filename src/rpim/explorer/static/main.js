// The page: toolbar, keys, connection, and background jobs.

import { accept, activate, junk, redo, undo } from "/static/actions.js";
import { change, connection, json, listen } from "/static/api.js";
import { checked } from "/static/classes.js";
import { colouring, legend, offerColours, reloadColumn } from "/static/colouring.js";
import { isDark } from "/static/colours.js";
import { toggleCharts } from "/static/charts.js";
import { isRenaming, isShowing, show, startRename } from "/static/detail.js";
import {
  askExport,
  askMerge,
  askMergeInto,
  askMove,
  askRefit,
  askSplit,
  showHelp,
} from "/static/dialogs.js";
import { byId, count, el, percent, say } from "/static/dom.js";
import { focused, focusItems } from "/static/items.js";
import { mapFacts, pan, pixelOf, setLasso, zoom } from "/static/map.js";
import { model } from "/static/model.js";
import { hasDates } from "/static/over_time.js";
import { queueKey, queueRow } from "/static/queue.js";
import { rankByRows } from "/static/ranking.js";
import { search } from "/static/search.js";

// Light or dark

const kept = localStorage.getItem("rpim-theme");
if (kept) document.documentElement.dataset.theme = kept;
byId("theme").onclick = () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("rpim-theme", theme);
  retheme();
};
function retheme() {
  legend();
  model.tell("theme");
  if (model.state) model.tell("state");
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);

// One pane at a time on a phone

function showView(view) {
  document.body.dataset.view = view;
  for (const tab of document.querySelectorAll(".tabs button"))
    tab.setAttribute("aria-pressed", tab.dataset.view === view);
}
for (const tab of document.querySelectorAll(".tabs button")) tab.onclick = () => showView(tab.dataset.view);

// The bar

byId("undo").onclick = undo;
byId("redo").onclick = redo;
byId("refit").onclick = askRefit;
byId("export").onclick = askExport;
byId("help").onclick = showHelp;
byId("history").onclick = showHistory;
byId("version").onchange = (event) => activate(Number(event.target.value));
byId("merge-checked").onclick = () => askMerge([...checked]);
byId("move").onclick = () => askMove([...model.selected]);
byId("like").onclick = () => rankByRows([...model.selected]);
byId("junk").onclick = () => junk([...model.selected], !areJunk());
byId("show-selection").onclick = () => model.tell("show-selection");
byId("clear-selection").onclick = () => model.select([]);
byId("show-over-time").onclick = () => showPanel("over_time");
byId("items").addEventListener("like", (event) => rankByRows([event.detail]));
byId("show-label-issues").onclick = () => showPanel("label_issues");
byId("show-queue").onclick = showQueue;
byId("show-tree").onclick = showTree;
function showTree() {
  showPanel("tree");
}
function showQueue() {
  model.select([]);
  showPanel("queue");
  byId("queue").focus();
}
function showPanel(kind) {
  model.show(null); // so that keys for a class do nothing
  show({ kind });
  if (innerWidth <= 900) showView("detail");
  byId("detail-title").focus();
}
function showHistory() {
  showPanel("history");
}
const areJunk = () => model.selected.size > 0 && [...model.selected].every((row) => model.codes[row] === -2);

let version = null;
model.on("state", () => {
  const { state } = model;
  for (const [id, what, name] of [
    ["undo", state.undo, "Undo"],
    ["redo", state.redo, "Redo"],
  ]) {
    byId(id).disabled = !what;
    byId(id).title = what ? `${name}: ${what}` : name;
    byId(id).setAttribute("aria-label", what ? `${name}: ${what}` : name);
  }
  byId("version").replaceChildren(
    ...state.versions.map((one) =>
      el("option", { value: one.number }, one.number ? `Version ${one.number}` : "The run"),
    ),
  );
  byId("version").value = state.version;
  byId("version").parentElement.hidden = state.versions.length < 2;
  if (version !== null && version !== state.version) {
    model.select([]);
    if (model.run) reloadColumn();
  }
  version = state.version;
  byId("show-label-issues").hidden = state.label_issues === 0;
  byId("label-issue-count").textContent = state.label_issues.toLocaleString("en");
  countAll();
  selection();
});
model.on("run", () => {
  byId("run-name").textContent = model.run.name;
  countAll();
  document.title = `${model.run.name} · rpim`;
  offerColours();
  if (model.run.images_moved)
    say("The images have moved. Restart with --images FOLDER.", {
      bad: true,
      seconds: 10,
    });
});
model.on("ranked", () => {
  if (innerWidth <= 900) showView("detail");
});
model.on("open", () => {
  if (model.open !== null && innerWidth <= 900) showView("detail");
});

function countAll() {
  if (!model.run) return;
  const { classes, members, expected_accuracy: accuracy } = model.state;
  const facts = [count(model.run.rows, "row"), count(classes.length, model.noun)];
  if (members > 1) facts.push(`committee of ${members}`);
  if (accuracy !== null) facts.push(`expected accuracy on known classes ${percent(accuracy)}`);
  byId("run-facts").textContent = facts.join(", ");
  byId("run-facts").title = byId("run-facts").textContent;
}

function selection() {
  const isHeld = byId("selection-bar").contains(document.activeElement);
  byId("selection-bar").hidden = model.selected.size === 0;
  if (isHeld && model.selected.size === 0) focusItems();
  byId("selection-count").textContent = `${model.selected.size.toLocaleString("en")} selected`;
  byId("junk").textContent = areJunk() ? "Not junk" : "Junk";
}
model.on("selection", selection);
byId("over").addEventListener("pick", (event) => {
  const { row, add } = event.detail;
  model.select([row], add ? "toggle" : "only");
  const number = model.codes[row];
  if (number >= 0 && number !== model.open) model.show(number);
  else if (number < 0) show({ kind: "selection" });
});
model.on("selection", () => {
  if (model.selected.size > 1 && !focused() && !isShowing("ranked")) show({ kind: "selection" });
});

model.on("show-selection", () => {
  show({ kind: "selection" });
  if (innerWidth <= 900) showView("detail");
});

// Keys

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), select, textarea") || byId("dialog").open;
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && !typing && ["z", "y"].includes(key)) {
    event.preventDefault();
    (key === "y" || event.shiftKey ? redo : undo)();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (queueKey(event)) return;
  const has = model.open !== null;
  const one = focused() ? Number(focused().dataset.row) : queueRow();
  const rows = model.selected.size ? [...model.selected] : one === null ? [] : [one];
  const work = {
    "?": showHelp,
    h: showHistory,
    q: showQueue,
    c: showTree,
    l: () => setLasso(byId("lasso").getAttribute("aria-pressed") !== "true"),
    "/": () => {
      showView("classes");
      byId("class-filter").focus();
    },
    s: () => {
      showView("map");
      search.focus();
    },
    f: toggleCharts,
    t: hasDates() && (() => showPanel("over_time")),
    n: rows.length && (() => rankByRows(rows)),
    m: rows.length && (() => askMove(rows)),
    x: rows.length && (() => junk(rows, !rows.every((row) => model.codes[row] === -2))),
    r: has && startRename,
    a: has && (() => accept(model.open, !model.byNumber.get(model.open).accepted)),
    d: has && (() => askSplit(model.open)),
    g: has && (() => askMergeInto(model.open)),
    escape: () => (model.selected.size ? model.select([]) : model.show(null)),
  }[key];
  if (work && !isRenaming()) {
    event.preventDefault();
    work();
  }
});

// Connection, other tabs, and background jobs

connection.listeners.add(() => {
  byId("offline").hidden = !connection.lost;
  byId("offline").textContent = connection.ended
    ? "The explorer was restarted with a new key: open the address that it printed. Nothing was lost."
    : "Connection lost, reconnecting… Decisions so far are saved; new ones cannot be made until it is back.";
});

let last = null;
async function heard(now) {
  const before = last;
  last = now;
  if (model.state && ![model.state.stamp, model.coming].includes(now.stamp)) await model.refresh().catch(() => null);
  if (before && before.map !== now.map) await model.loadMap().catch(() => null);
  const isNews = before ? before.refit.status === "running" : now.refit.unseen; // ended while no explorer was open
  if (isNews && now.refit.status !== "running") ended(now.refit);
  background(now);
}

function ended(refit) {
  if (refit.status === "done") {
    const isBusy = byId("dialog").open || model.selected.size > 0 || document.activeElement?.tagName === "INPUT";
    say("The refit is done.", { action: isBusy ? { name: "Show changes", run: showHistory } : null, seconds: 12 });
    if (isBusy) return;
    model.show(null);
    show({ kind: "history" });
  }
  if (refit.status === "failed")
    say(`The refit failed: ${refit.error ?? "no error message."}`, {
      bad: true,
      seconds: 10,
      action: { name: "Refit…", run: askRefit },
    });
  if (refit.status === "cancelled") say("The refit was cancelled.");
}

function background(now) {
  const notice = byId("notice");
  notice.hidden = now.refit.status !== "running" && now.mapping !== "running";
  byId("refit").disabled = now.refit.status === "running";
  if (now.refit.status === "running") {
    notice.replaceChildren(
      el("span", {}, `Refitting: ${now.refit.stage ?? "starting"}`),
      el("progress", {
        max: 1,
        "aria-label": "Progress of the refit",
        ...(now.refit.share ? { value: now.refit.share } : {}),
      }),
      el(
        "button",
        {
          id: "cancel-refit",
          onclick: () => change("/api/refit/cancel").catch((error) => say(error.message, { bad: true })),
        },
        "Cancel",
      ),
    );
  } else if (now.mapping === "running")
    notice.replaceChildren(el("span", {}, "Computing a UMAP map; it replaces this one when it is ready."));
}

const colours = () => colouring({ pointed: null });
window.rpim = { model, mapFacts, pan, zoom, json, pixelOf, colouring: colours }; // for measuring
await model.load().catch((error) => {
  byId("offline").hidden = false;
  byId("offline").textContent = error.message;
});
listen(heard);
document.body.dataset.ready = "true";
performance.mark("rpim-ready");
