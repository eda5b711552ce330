// Spatial index: which row is at a position, by a uniform grid.

const CELLS = 256;

export class PointIndex {
  constructor(positions) {
    const n = positions.length / 2;
    let [x0, y0, x1, y1] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < n; i++) {
      x0 = Math.min(x0, positions[2 * i]);
      x1 = Math.max(x1, positions[2 * i]);
      y0 = Math.min(y0, positions[2 * i + 1]);
      y1 = Math.max(y1, positions[2 * i + 1]);
    }
    if (n === 0) [x0, y0, x1, y1] = [0, 0, 1, 1];
    this.positions = positions;
    this.box = { x0, y0, x1, y1 };
    this.width = Math.max(x1 - x0, 1e-6) / CELLS;
    this.height = Math.max(y1 - y0, 1e-6) / CELLS;
    this.starts = new Uint32Array(CELLS * CELLS + 1);
    const cells = new Uint32Array(n);
    for (let i = 0; i < n; i++) {
      cells[i] = this.column(positions[2 * i]) + CELLS * this.line(positions[2 * i + 1]);
      this.starts[cells[i] + 1]++;
    }
    this.sums = summed(this.starts.subarray(1));
    for (let c = 0; c < CELLS * CELLS; c++) this.starts[c + 1] += this.starts[c];
    const next = this.starts.slice();
    this.rows = new Uint32Array(n);
    for (let i = 0; i < n; i++) this.rows[next[cells[i]]++] = i;
  }

  column(x) {
    return Math.min(CELLS - 1, Math.max(0, Math.floor((x - this.box.x0) / this.width)));
  }
  line(y) {
    return Math.min(CELLS - 1, Math.max(0, Math.floor((y - this.box.y0) / this.height)));
  }

  *within(x0, y0, x1, y1) {
    for (let line = this.line(y0); line <= this.line(y1); line++) {
      for (let column = this.column(x0); column <= this.column(x1); column++) {
        const cell = column + CELLS * line;
        for (let k = this.starts[cell]; k < this.starts[cell + 1]; k++) yield this.rows[k];
      }
    }
  }

  /** About how many rows are in a rectangle: those of all cells that it touches. */
  count(x0, y0, x1, y1) {
    const { box } = this;
    if (x1 < box.x0 || x0 > box.x1 || y1 < box.y0 || y0 > box.y1) return 0;
    const [left, right] = [this.column(x0), this.column(x1) + 1];
    const [top, bottom] = [this.line(y0) * (CELLS + 1), (this.line(y1) + 1) * (CELLS + 1)];
    return this.sums[bottom + right] - this.sums[top + right] - this.sums[bottom + left] + this.sums[top + left];
  }

  /** The nearest row within `reach`, of those in `mask` if there is one; -1 if there is none. */
  nearest(x, y, reach, mask = null) {
    let [best, least] = [-1, reach * reach];
    for (const row of this.within(x - reach, y - reach, x + reach, y + reach)) {
      if (mask && !mask[row]) continue;
      const distance = (this.positions[2 * row] - x) ** 2 + (this.positions[2 * row + 1] - y) ** 2;
      if (distance < least) [best, least] = [row, distance];
    }
    return best;
  }

  /** The rows inside a polygon, given as [[x, y], ...]. */
  inside(polygon) {
    const xs = polygon.map(([x]) => x);
    const ys = polygon.map(([, y]) => y);
    const rows = [];
    for (const row of this.within(Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys))) {
      if (isInside(this.positions[2 * row], this.positions[2 * row + 1], polygon)) rows.push(row);
    }
    return rows.sort((a, b) => a - b);
  }
}

/** The summed-area table of the number of rows in each cell. */
function summed(counts) {
  const width = CELLS + 1;
  const sums = new Uint32Array(width * width);
  for (let line = 0; line < CELLS; line++)
    for (let column = 0; column < CELLS; column++) {
      const at = (line + 1) * width + column + 1;
      sums[at] = counts[line * CELLS + column] + sums[at - 1] + sums[at - width] - sums[at - width - 1];
    }
  return sums;
}

function isInside(x, y, polygon) {
  let inside = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i++) {
    const [ax, ay] = polygon[i];
    const [bx, by] = polygon[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
