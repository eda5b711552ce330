"use strict";
// The map on a canvas with what is under the pointer, finding and sorting of classes. What comes from the run is only
// ever set as text or as the address of a picture that is already in the page.
(() => {
  const root = document.documentElement;
  root.classList.add("with-script");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // Classes: find, show all, sort.

  const FIRST = 24;
  const cards = [...document.querySelectorAll(".card")];
  const rows = [...document.querySelectorAll("#known-table tbody tr")];
  const find = document.getElementById("find");
  const more = document.getElementById("more");
  let all = cards.length <= FIRST;

  function showClasses() {
    const wanted = find ? find.value.trim().toLowerCase() : "";
    const fits = (one) => !wanted || one.dataset.find.includes(wanted);
    let shown = 0;
    for (const card of cards) {
      const here = fits(card) && (all || wanted !== "" || shown < FIRST);
      card.classList.toggle("away", !here);
      shown += here;
    }
    rows.forEach((row) => row.classList.toggle("away", !fits(row)));
    if (more) more.classList.toggle("away", all || wanted !== "");
    const none = document.getElementById("none");
    if (none) none.classList.toggle("away", shown > 0 || rows.some((row) => !row.classList.contains("away")));
  }
  if (find) find.addEventListener("input", showClasses);
  if (more) more.addEventListener("click", () => { all = true; showClasses(); });
  addEventListener("beforeprint", () => { if (find && !find.value) { all = true; showClasses(); } });
  showClasses();

  function open(number) {
    all = true;
    if (find) find.value = "";
    showClasses();
    location.hash = `class-${number}`;
  }
  const asked = /^#class-\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
  if (asked) { all = true; showClasses(); asked.scrollIntoView(); }

  for (const button of document.querySelectorAll("#known-table thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const place = [...head.parentNode.children].indexOf(head);
      const up = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") !== "ascending" : place === 0;
      head.parentNode.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.children[place].dataset.value;
      const numbers = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
      const order = (a, b) => (numbers ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b)));
      rows.sort((a, b) => (up ? 1 : -1) * order(a, b));
      document.querySelector("#known-table tbody").append(...rows);
    });
  }

  // The map.

  const source = document.getElementById("map-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
  const places = new Uint16Array(bytes(data.places));
  const classes = new Uint16Array(bytes(data.classes));
  const confidence = new Uint8Array(bytes(data.confidence));
  const n = classes.length;
  const nClasses = data.names.length; // a row of that number has no class
  const members = Array.from({ length: nClasses + 1 }, () => []);
  classes.forEach((one, i) => members[one].push(i));

  const canvas = document.getElementById("map-canvas");
  const tip = document.getElementById("map-tip");
  const colouring = document.getElementById("map-colour");
  const names = document.getElementById("map-names");
  const pen = canvas.getContext("2d");
  const [wholeXs, wholeYs] = [new Float32Array(n), new Float32Array(n)]; // where rows are while all are shown
  const [xs, ys] = [new Float32Array(n), new Float32Array(n)];
  const view = { zoom: 1, x: 0, y: 0 }; // a row is at zoom * whole + (x, y)
  let grid = new Map();
  const CELL = 14;
  const cellOf = (column, line) => 65536 * column + line;
  let marked = -1;
  let paper = false;

  const isDark = () => dark.matches && !paper;
  const mixed = (colour, other, share) => {
    const part = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
    const each = [0, 1, 2].map((k) => Math.round(part(colour, k) * (1 - share) + part(other, k) * share));
    return `rgb(${each.join(" ")})`;
  };
  const ofClass = (k) => (k === nClasses ? "#8a9099" : isDark() ? mixed(data.colours[k], "#ffffff", 0.3) : data.colours[k]);
  const ofKnown = (k) => (k === nClasses ? "#8a9099" : data.known[k] ? (isDark() ? "#6db8ea" : "#0072b2") : (isDark() ? "#f0984e" : "#d55e00"));
  const ofConfidence = (share) => (share < 0.5
    ? mixed("#d55e00", isDark() ? "#7d858f" : "#c3c8ce", 2 * share)
    : mixed(isDark() ? "#7d858f" : "#c3c8ce", isDark() ? "#6db8ea" : "#0a5c93", 2 * share - 1));

  function lay() {
    const { width, height } = canvas.getBoundingClientRect();
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    let [left, right, top, bottom] = [65535, 0, 65535, 0];
    for (let i = 0; i < n; i += 1) {
      left = Math.min(left, places[2 * i]); right = Math.max(right, places[2 * i]);
      top = Math.min(top, places[2 * i + 1]); bottom = Math.max(bottom, places[2 * i + 1]);
    }
    const room = 22;
    // A map has no up or right: on a tall screen it lies on its side.
    const turn = (right - left > bottom - top) !== (width > height);
    const [wide, high] = turn ? [bottom - top, right - left] : [right - left, bottom - top];
    const each = Math.min((width - 2 * room) / (wide || 1), (height - 2 * room) / (high || 1));
    for (let i = 0; i < n; i += 1) {
      const x = places[2 * i] - (left + right) / 2;
      const y = places[2 * i + 1] - (top + bottom) / 2;
      wholeXs[i] = width / 2 + each * (turn ? y : x);
      wholeYs[i] = height / 2 - each * (turn ? x : y);
    }
    move(view.zoom, view.x, view.y);
  }

  // Zoom and pan. The map never leaves its frame.

  function move(zoom, x, y) {
    const { width, height } = canvas.getBoundingClientRect();
    view.zoom = Math.min(40, Math.max(1, zoom));
    view.x = Math.min(0, Math.max(width * (1 - view.zoom), x));
    view.y = Math.min(0, Math.max(height * (1 - view.zoom), y));
    canvas.classList.toggle("zoomed", view.zoom > 1);
    grid = new Map();
    for (let i = 0; i < n; i += 1) {
      xs[i] = view.zoom * wholeXs[i] + view.x;
      ys[i] = view.zoom * wholeYs[i] + view.y;
      if (xs[i] < -CELL || ys[i] < -CELL || xs[i] > width + CELL || ys[i] > height + CELL) continue;
      const cell = cellOf(Math.floor(xs[i] / CELL), Math.floor(ys[i] / CELL));
      if (grid.has(cell)) grid.get(cell).push(i); else grid.set(cell, [i]);
    }
    draw();
  }
  function zoomBy(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const by = Math.min(40, Math.max(1, view.zoom * factor)) / view.zoom;
    move(view.zoom * by, x - by * (x - view.x), y - by * (y - view.y));
  }
  const pan = (x, y) => move(view.zoom, view.x + x, view.y + y);
  const showAll = () => move(1, 0, 0);

  document.getElementById("zoom-in").addEventListener("click", () => zoomBy(1.6));
  document.getElementById("zoom-out").addEventListener("click", () => zoomBy(1 / 1.6));
  document.getElementById("zoom-all").addEventListener("click", showAll);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
    event.preventDefault();
    leave();
    zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.004)), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const work = {
      ArrowLeft: () => pan(60, 0), ArrowRight: () => pan(-60, 0), ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
      "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), 0: showAll,
    }[event.key];
    if (!work || event.ctrlKey || event.metaKey || (view.zoom === 1 && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    work();
  });

  const basis = n > 4000 ? 1.9 : n > 1200 ? 2.3 : 3;

  function dots(points, colour, ring) {
    const size = basis * Math.min(2, Math.sqrt(view.zoom));
    pen.beginPath();
    for (const i of points) {
      pen.moveTo(xs[i] + size, ys[i]);
      pen.arc(xs[i], ys[i], size, 0, 6.2832);
    }
    if (ring) { pen.strokeStyle = colour; pen.lineWidth = 1.1; pen.stroke(); } else { pen.fillStyle = colour; pen.fill(); }
  }

  function draw() {
    const { width, height } = canvas.getBoundingClientRect();
    pen.clearRect(0, 0, width, height);
    const order = [nClasses, ...data.names.map((_, k) => k)].filter((k) => k !== marked);
    if (marked >= 0) order.push(marked);
    for (const k of order) {
      pen.globalAlpha = marked >= 0 && k !== marked ? 0.13 : 0.85;
      const ring = k < nClasses && !data.known[k];
      if (colouring.value !== "confidence") {
        dots(members[k], colouring.value === "known" ? ofKnown(k) : ofClass(k), ring);
      } else {
        for (let step = 0; step < 10; step += 1) {
          const some = members[k].filter((i) => Math.min(9, Math.floor(confidence[i] / 10)) === step);
          if (some.length) dots(some, ofConfidence((step + 0.5) / 10), ring);
        }
      }
    }
    pen.globalAlpha = 1;
    if (names.checked) writeNames(width, height);
  }

  const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  /** The row nearest to the middle of its class: where a class is in several places, the middle may be in none. */
  function heart(points) {
    const [x, y] = [middle(points.map((i) => xs[i])), middle(points.map((i) => ys[i]))];
    const far = (i) => (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
    return points.reduce((best, i) => (far(i) < far(best) ? i : best), points[0]);
  }
  const cut = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

  /** The number of rows in a rectangle, or touching it. */
  function covered(box) {
    const [x0, y0, x1, y1] = [box[0] - 4, box[1] - 4, box[2] + 4, box[3] + 4];
    let found = 0;
    for (let a = Math.floor(x0 / CELL); a <= Math.floor(x1 / CELL); a += 1) {
      for (let b = Math.floor(y0 / CELL); b <= Math.floor(y1 / CELL); b += 1) {
        for (const i of grid.get(cellOf(a, b)) || []) found += xs[i] > x0 && xs[i] < x1 && ys[i] > y0 && ys[i] < y1;
      }
    }
    return found;
  }

  /** Where a name may be: around the middle of its class, around most of its rows, or around all of them. */
  function candidates(points, at, wide, high) {
    const [across, down] = [xs, ys].map((all) => points.map((i) => all[i]).sort((a, b) => a - b));
    const [x, y] = [xs[at], ys[at]];
    const found = [[x, y - 12], [x, y + 12]];
    for (const cut of [0.1, 0]) {
      const [first, last] = [Math.floor(cut * points.length), Math.ceil((1 - cut) * points.length) - 1];
      for (const px of [x, across[first] - wide / 2 - 4, across[last] + wide / 2 + 4]) {
        for (const py of [y, down[first] - high / 2 - 4, down[last] + high / 2 + 4]) if (px !== x || py !== y) found.push([px, py]);
      }
    }
    return found;
  }

  /** Names of new classes first, then of larger ones, where they cover few rows and no other name. */
  function writeNames(width, height) {
    const taken = [];
    const wanted = data.names.map((_, k) => k).filter((k) => members[k].length && (marked < 0 || k === marked))
      .sort((a, b) => (data.known[a] - data.known[b]) || members[b].length - members[a].length);
    const most = (width * height) / 6000;
    const within = (value, low, high) => Math.min(Math.max(value, low), high);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const [ground, ink, quiet] = isDark() ? ["#1c2024", "#e6e8ea", "#8a9099"] : ["#ffffff", "#1f2328", "#6b7280"];
    for (const k of wanted) {
      const at = heart(members[k]);
      if (taken.length > most || xs[at] < 0 || ys[at] < 0 || xs[at] > width || ys[at] > height) continue;
      const text = cut(data.titles[k]);
      pen.font = `${data.known[k] ? "" : "600 "}11.5px system-ui, sans-serif`;
      const [wide, high] = [pen.measureText(text).width + 8, 18];
      let [best, least] = [null, Infinity];
      for (const [cx, cy] of candidates(members[k], at, wide, high)) {
        // At an edge of the map, a name is shifted into it.
        const [x, y] = [within(cx, wide / 2, width - wide / 2), within(cy, high / 2, height - high / 2)];
        const box = [x - wide / 2, y - high / 2, x + wide / 2, y + high / 2];
        if (box[0] < 0 || box[1] < 0 || box[2] > width || box[3] > height) continue;
        // A name far from its class says nothing: zooming in makes room for it.
        const away = Math.hypot(Math.max(Math.abs(x - xs[at]) - wide / 2, 0), Math.max(Math.abs(y - ys[at]) - high / 2, 0));
        if (away > 60 && k !== marked) continue;
        if (taken.some((one) => box[0] < one[2] + 8 && box[2] > one[0] - 8 && box[1] < one[3] && box[3] > one[1])) continue;
        // A row that is covered counts as much as 40 pixels.
        const cost = 40 * Math.log2(1 + covered(box)) + Math.hypot(x - xs[at], y - ys[at]);
        if (cost < least) [best, least] = [box, cost];
      }
      if (!best) continue;
      taken.push(best);
      const [x, y] = [(best[0] + best[2]) / 2, (best[1] + best[3]) / 2];
      const [nearX, nearY] = [within(xs[at], best[0] + 4, best[2] - 4), within(ys[at], best[1] + 4, best[3] - 4)];
      if (Math.hypot(xs[at] - nearX, ys[at] - nearY) > 14) {
        pen.strokeStyle = quiet; // a line to the middle of its class
        pen.lineWidth = 0.75;
        pen.beginPath();
        pen.moveTo(nearX, nearY);
        pen.lineTo(xs[at], ys[at]);
        pen.stroke();
      }
      pen.lineWidth = 4;
      pen.strokeStyle = ground;
      pen.strokeText(text, x, y);
      pen.fillStyle = ink;
      pen.fillText(text, x, y);
    }
  }

  function under(x, y) {
    let best = -1;
    let nearest = 12 * 12;
    const [column, line] = [Math.floor(x / CELL), Math.floor(y / CELL)];
    for (let a = column - 1; a <= column + 1; a += 1) {
      for (let b = line - 1; b <= line + 1; b += 1) {
        for (const i of grid.get(cellOf(a, b)) || []) {
          const far = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
          if (far < nearest) { nearest = far; best = i; }
        }
      }
    }
    return best;
  }

  // Tiny pictures of rows, all on one sheet.
  const cells = new Map((data.sheet?.rows ?? []).map((row, place) => [row, place]));
  const sheet = new Image();
  if (data.sheet) sheet.src = data.sheet.address;

  function pictureOf(row) {
    const picture = document.querySelector(`img[data-row="${row}"]`);
    if (picture) {
      const copy = document.createElement("img");
      copy.src = picture.src;
      copy.alt = "";
      copy.classList.toggle("pixels", picture.classList.contains("pixels"));
      return copy;
    }
    if (!cells.has(row) || !sheet.complete) return null;
    const { cell, columns } = data.sheet;
    const place = cells.get(row);
    const copy = document.createElement("canvas");
    copy.width = copy.height = cell;
    copy.getContext("2d").drawImage(
      sheet, cell * (place % columns), cell * Math.floor(place / columns), cell, cell, 0, 0, cell, cell,
    );
    return copy;
  }

  function tell(i) {
    const k = classes[i];
    const line = (kind, text) => {
      const made = document.createElement(kind);
      made.textContent = text;
      made.dir = "auto";
      return made;
    };
    const none = k === nClasses;
    const title = none ? "No class" : data.titles[k];
    const beside = none || data.titles[k] === data.names[k] ? "" : ` (${data.names[k]})`;
    const parts = [line("b", title + beside)];
    if (!none) parts.push(line("span", `${data.known[k] ? "known class" : "new class"}, ${confidence[i]}% confidence`));
    parts.push(line("div", data.captions[i]));
    const picture = pictureOf(data.rows[i]);
    if (picture) parts.push(picture);
    tip.replaceChildren(...parts);
  }

  let shown = -1;
  function leave() {
    shown = -1;
    tip.hidden = true;
    canvas.style.cursor = "";
    if (marked >= 0) { marked = -1; draw(); }
  }
  function point(event) {
    const area = canvas.getBoundingClientRect();
    const i = under(event.clientX - area.left, event.clientY - area.top);
    if (i < 0) { if (shown >= 0) leave(); return; }
    if (i === shown) return;
    shown = i;
    canvas.style.cursor = classes[i] < nClasses ? "pointer" : "";
    tell(i);
    tip.hidden = false;
    const right = xs[i] > area.width / 2;
    tip.style.left = right ? "" : `${xs[i] + 14}px`;
    tip.style.right = right ? `${area.width - xs[i] + 14}px` : "";
    tip.style.top = `${Math.max(4, Math.min(ys[i] + 12, area.height - tip.offsetHeight - 4))}px`;
    if (marked !== classes[i]) { marked = classes[i]; draw(); }
  }

  // One pointer moves a zoomed map, two pinch.
  const pressed = new Map();
  let dragged = false;
  canvas.addEventListener("pointerdown", (event) => {
    pressed.set(event.pointerId, [event.offsetX, event.offsetY]);
    dragged = false;
    point(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pressed.get(event.pointerId);
    const now = [event.offsetX, event.offsetY];
    if (!before) { point(event); return; }
    if (pressed.size === 1 && (view.zoom === 1 || (!dragged && Math.hypot(now[0] - before[0], now[1] - before[1]) < 3))) return;
    if (!dragged) { dragged = true; canvas.setPointerCapture(event.pointerId); leave(); }
    if (pressed.size === 1) {
      pan(now[0] - before[0], now[1] - before[1]);
    } else {
      const [other] = [...pressed].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const far = (at) => Math.max(1, Math.hypot(at[0] - other[0], at[1] - other[1]));
      zoomBy(far(now) / far(before), other[0], other[1]);
    }
    pressed.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => pressed.delete(event.pointerId));
  canvas.addEventListener("pointerleave", (event) => { pressed.delete(event.pointerId); leave(); });
  canvas.addEventListener("click", (event) => {
    if (!dragged && event.pointerType !== "touch" && shown >= 0 && classes[shown] < nClasses) open(classes[shown]);
  });
  colouring.addEventListener("change", draw);
  names.addEventListener("change", draw);
  dark.addEventListener("change", draw);
  addEventListener("beforeprint", () => { paper = true; draw(); });
  addEventListener("afterprint", () => { paper = false; draw(); });
  new ResizeObserver(lay).observe(canvas);
})();
