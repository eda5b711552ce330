// Drawing many points: with WebGL, or on a 2-D canvas without it.

const VERTEX = `
attribute vec2 place; attribute vec4 colour; attribute float size;
uniform vec2 scale; uniform vec2 shift; uniform float diameter;
varying vec4 paint;
void main() {
  gl_Position = vec4(place * scale + shift, 0.0, 1.0);
  gl_PointSize = diameter * (1.0 + size);
  paint = colour;
}`;
const FRAGMENT = `
precision mediump float;
varying vec4 paint;
void main() {
  float r = length(gl_PointCoord - 0.5);
  float cover = paint.a * (1.0 - smoothstep(0.40, 0.5, r));
  gl_FragColor = vec4(paint.rgb * cover, cover);
}`;

/**
 * A painter for a canvas: positions(), colours(), draw(view, share). A view has scale, x, y (its middle), width, height,
 * ratio. Points are drawn in a random order, so that no class lies on top, and a share of them looks like all.
 */
export function painter(canvas, noWebGl = false) {
  const gl = noWebGl ? null : canvas.getContext("webgl", { antialias: false });
  return gl ? new WebGlPainter(canvas, gl) : new CanvasPainter(canvas);
}

export const diameter = (n, view) => {
  const basis = n > 50000 ? 2.2 : n > 5000 ? 3.4 : n > 1000 ? 5 : 7;
  return view.ratio * Math.min(basis * Math.max(1, Math.sqrt(view.scale / view.whole)), 14);
};

/** The rows in a random order, always the same. */
function shuffled(n) {
  const order = Uint32Array.from({ length: n }, (_, k) => k);
  let seed = 1;
  for (let k = n - 1; k > 0; k--) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const other = seed % (k + 1);
    [order[k], order[other]] = [order[other], order[k]];
  }
  return order;
}

/** Of values with so many numbers a row, those of the rows in this order. */
function inOrder(values, width, order) {
  const out = new values.constructor(values.length);
  for (let k = 0; k < order.length; k++)
    for (let d = 0; d < width; d++) out[width * k + d] = values[width * order[k] + d];
  return out;
}

class WebGlPainter {
  kind = "WebGL";
  n = 0;
  order = new Uint32Array(0);

  constructor(canvas, gl) {
    this.canvas = canvas;
    this.gl = gl;
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.prepare();
      this.again?.();
    });
    this.prepare();
  }

  prepare() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [type, source] of [
      [gl.VERTEX_SHADER, VERTEX],
      [gl.FRAGMENT_SHADER, FRAGMENT],
    ]) {
      const shader = gl.createShader(type);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    gl.useProgram(program);
    this.uniform = Object.fromEntries(
      ["scale", "shift", "diameter"].map((name) => [name, gl.getUniformLocation(program, name)]),
    );
    this.buffers = {};
    for (const [name, size, type, normalized] of [
      ["place", 2, gl.FLOAT, false],
      ["colour", 4, gl.UNSIGNED_BYTE, true],
      ["size", 1, gl.UNSIGNED_BYTE, true],
    ]) {
      const at = gl.getAttribLocation(program, name);
      this.buffers[name] = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, size, type, normalized, 0, 0);
    }
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA); // colours come multiplied by their cover
    if (this.lastPositions) {
      this.positions(this.lastPositions);
      this.colours(...this.lastColours);
    }
  }

  fill(name, values) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
  }

  positions(positions) {
    this.n = positions.length / 2;
    if (this.order.length !== this.n) this.order = shuffled(this.n);
    this.lastPositions = positions;
    this.fill("place", inOrder(positions, 2, this.order));
  }

  colours(colours, sizes) {
    this.lastColours = [colours, sizes];
    if (sizes.length !== this.n) return; // classes are there before positions are
    this.fill("colour", inOrder(colours, 1, this.order));
    this.fill("size", inOrder(sizes, 1, this.order));
  }

  draw(view, share = 1) {
    const { gl } = this;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const [sx, sy] = [(2 * view.scale) / view.width, (2 * view.scale) / view.height];
    gl.uniform2f(this.uniform.scale, sx, sy);
    gl.uniform2f(this.uniform.shift, -view.x * sx, -view.y * sy);
    gl.uniform1f(this.uniform.diameter, diameter(this.n, view));
    if (this.lastColours?.[1].length === this.n) gl.drawArrays(gl.POINTS, 0, Math.ceil(share * this.n));
  }
}

class CanvasPainter {
  kind = "canvas";
  n = 0;
  at = new Float32Array(0);
  groups = new Map();

  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  positions(positions) {
    this.n = positions.length / 2;
    this.at = positions;
  }

  colours(colours, sizes) {
    this.sizes = sizes;
    const groups = new Map(); // rows by colour, because changing the brush is what takes time
    for (let row = 0; row < colours.length; row++) {
      if (!groups.has(colours[row])) groups.set(colours[row], []);
      groups.get(colours[row]).push(row);
    }
    this.groups = groups;
  }

  draw(view, share = 1) {
    const { context, canvas } = this;
    const step = Math.max(1, Math.round(1 / share));
    context.clearRect(0, 0, canvas.width, canvas.height);
    const side = diameter(this.n, view);
    for (const [colour, rows] of this.groups) {
      if (!this.n) break; // classes are there before positions are
      const [r, g, b, strength] = [0, 8, 16, 24].map((shift) => (colour >>> shift) & 255);
      context.fillStyle = `rgb(${r} ${g} ${b} / ${(strength / 255).toFixed(2)})`;
      for (let k = 0; k < rows.length; k += step) {
        const row = rows[k];
        const x = canvas.width / 2 + (this.at[2 * row] - view.x) * view.scale * view.ratio;
        const y = canvas.height / 2 - (this.at[2 * row + 1] - view.y) * view.scale * view.ratio;
        if (x < 0 || y < 0 || x > canvas.width || y > canvas.height) continue;
        const wide = side * (1 + this.sizes[row] / 255);
        context.fillRect(x - wide / 2, y - wide / 2, wide, wide);
      }
    }
  }
}
