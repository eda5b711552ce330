// The state of the page: the run, its current decisions, and the selection.

import { json, numbers } from "/static/api.js";

export const JUNK = -2;

class Model extends EventTarget {
  run = null; // facts that do not change
  state = null; // classes, versions, what can be undone
  codes = new Int32Array(0); // the class of each row
  positions = new Float32Array(0); // x, y of each row
  byNumber = new Map();
  open = null; // the number of the class that is shown
  selected = new Set(); // rows
  found = null; // rows of the search, or null
  ranked = null; // of a search by meaning: {title, order, similarity}
  asked = null; // the row that the queue asks about
  filters = ""; // of the charts, as the server takes them
  mask = null; // of each row, whether it passes the filters; null without filters
  within = null; // of each class, how many of its rows pass; null without filters
  refit = { status: "idle" };

  tell(what) {
    this.dispatchEvent(new Event(what));
  }
  on(what, listener) {
    this.addEventListener(what, listener);
  }

  async load() {
    [this.run] = await Promise.all([json("/api/run"), this.refresh()]);
    this.positions = await numbers("/api/map", Float32Array);
    this.tell("run");
    this.tell("map");
  }

  async loadMap() {
    this.run = await json("/api/run");
    this.positions = await numbers("/api/map", Float32Array);
    this.tell("map");
  }

  /** Update the state and the classes of the rows; resolves once the latest answer is shown. */
  refresh(state = null) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.coming = state?.stamp ?? null;
    this.latest = Promise.all([state ?? json("/api/state"), numbers("/api/codes", Int32Array)]).then(
      ([fresh, codes]) => {
        if (turn !== this.turn) return this.latest; // a later one has begun meanwhile
        this.take(fresh, codes);
        return null;
      },
    );
    return this.latest;
  }

  take(state, codes) {
    this.state = state;
    this.codes = codes;
    this.byNumber = new Map(state.classes.map((one) => [one.number, one]));
    if (this.open !== null && !this.byNumber.has(this.open)) this.open = null;
    this.countWithin();
    this.tell("state");
  }

  /** Rows that do not pass the filters are left out of lists, of the map, and of the selection. */
  filter(filters, mask) {
    [this.filters, this.mask] = [filters, mask];
    this.countWithin();
    this.tell("filter");
    if (mask && [...this.selected].some((row) => !mask[row])) this.select(this.passing([...this.selected]));
  }

  countWithin() {
    this.within = this.mask && new Map();
    if (!this.mask) return;
    for (let row = 0; row < this.codes.length; row++)
      if (this.mask[row]) this.within.set(this.codes[row], (this.within.get(this.codes[row]) ?? 0) + 1);
  }

  /** Of these rows, those that pass the filters. */
  passing(rows) {
    return this.mask ? rows.filter((row) => this.mask[row]) : rows;
  }

  /** How many rows of a class pass the filters. */
  rowsOf(one) {
    return this.within ? (this.within.get(one.number) ?? 0) : one.rows;
  }

  /** Without any known class, the classes are groups. */
  get noun() {
    return !this.state || this.state.classes.some((one) => one.known) ? "class" : "group";
  }
  get nouns() {
    return this.noun === "class" ? "classes" : "groups";
  }

  name(number) {
    return this.byNumber.get(number)?.name ?? (number === JUNK ? "junk" : `no ${this.noun}`);
  }

  /** The name to show on the map: the suggested one, until a person has named the class. */
  title(number) {
    return this.byNumber.get(number)?.suggested || this.name(number);
  }

  show(number) {
    this.open = number;
    this.tell("open");
  }

  select(rows, how = "only") {
    if (how === "only") this.selected = new Set(rows);
    else
      for (const row of rows)
        how === "toggle" && this.selected.has(row) ? this.selected.delete(row) : this.selected.add(row);
    this.tell("selection");
  }
}

export const model = new Model();
