// What both maps have: a canvas that is drawn at most once a frame, colours of the page, and how
// long drawing takes.

import { spend } from "./frames.js";

const HEATS = 7;
/** A link this busy has the heat of its place here. */
const STEPS = [0.001, 0.2, 0.4, 0.6, 0.8, 1.0];

export const heatOf = (load) => STEPS.reduce((heat, step) => heat + (load > step + 1e-6), 0);

export class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.fabric = undefined;
    this.level = "all";
    this.shown = undefined;
    /** Milliseconds that the latest frames took. */
    this.frames = [];
    new ResizeObserver(() => this.wake()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.wake());
  }

  /** Draws another fabric, or the same with other loads. */
  show(fabric) {
    this.fabric = fabric;
    this.wake();
  }

  /** Draws the load of one level, or of all. */
  of(level) {
    this.level = level;
    this.wake();
  }

  /** Draws some links and nodes above all others: `{ links, nodes, was, isPath }`. */
  point(shown) {
    this.shown = shown;
    this.wake();
  }

  wake() {
    if (this.asked || this.canvas.hidden) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = undefined;
      const took = spend(() => this.draw());
      this.frames.push(took);
      if (this.frames.length > 200) this.frames.shift();
      if (this.fabric && !performance.getEntriesByName("drawn").length) performance.mark("drawn");
    });
  }

  draw() {
    const { canvas } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    if (!this.fabric || !width) return;
    this.size = { width, height };
    pen.font = "12px system-ui, sans-serif";
    this.paint(pen, palette(canvas));
  }
}

function palette(canvas) {
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const named = ["ink", "faint", "paper", "line", "accent", "bad", "warn"];
  return {
    ...Object.fromEntries(named.map((name) => [name, colour(name)])),
    heat: Array.from({ length: HEATS }, (_, heat) => colour(`heat-${heat}`)),
  };
}
