// A small fabric as a graph on a canvas: tiers one above the other, cables coloured by load.
//
// Only the width is zoomed, so that every tier stays in sight, and text too small to be read is
// left out: names first, then hosts. Each half of a cable is coloured by the link that leaves its
// end. Cables of one heat are one path, so that a thousand of them cost as much as one.

import { loadsOf, stateOf } from "./fabric.js";
import { Surface, heatOf } from "./surface.js";

const WIDTHS = [0.6, 1, 1.4, 1.8, 2.4, 3, 3.6];
const NEAR = 7;
const MARGIN = 28;

export class FabricGraph extends Surface {
  constructor(canvas, hear) {
    super(canvas);
    this.hear = hear;
    this.view = { from: 0, to: 1 };
    this.listen();
  }

  /** Shows `factor` times as much of the width, around a share of the canvas. */
  zoom(factor, around = 0.5) {
    const { from, to } = this.view;
    const width = Math.min(1, Math.max(this.least(), (to - from) * factor));
    this.look(from + (to - from - width) * around, width);
  }

  /** Shows the part beside this one. */
  move(share) {
    const width = this.view.to - this.view.from;
    this.look(this.view.from + share * width, width);
  }

  all() {
    this.look(0, 1);
  }

  look(from, width) {
    const start = Math.min(1 - width, Math.max(0, from));
    this.view = { from: start, to: start + width };
    this.wake();
  }

  /** Three leaves fill the width at most. */
  least() {
    const leaves = this.fabric ? this.count("leaf") : 1;
    return Math.min(1, 3 / Math.max(1, leaves));
  }

  count(tier) {
    return this.fabric.nodes.filter((node) => node.tier === tier).length;
  }

  paint(pen, ink) {
    this.loads = loadsOf(this.fabric, this.level);
    this.measure();
    pen.globalAlpha = this.shown ? 0.3 : 1;
    this.drawCables(pen, ink);
    pen.globalAlpha = 1;
    if (this.shown) this.drawShown(pen, ink);
    this.drawNodes(pen, ink);
  }

  /** Where everything is on the screen. */
  measure() {
    const { fabric, view } = this;
    const { width, height } = this.size;
    const room = (width - 2 * MARGIN) / (view.to - view.from);
    const rows = fabric.tiers.length;
    const hosts = fabric.tiers.at(-1) === "host";
    this.gap = room / Math.max(1, this.count("leaf"));
    for (const node of fabric.nodes) {
      const tier = fabric.tiers.indexOf(node.tier);
      const share = hosts ? (tier + 0.5) / (rows - 0.25) : (tier + 0.5) / rows;
      node.sx = MARGIN + (node.x - view.from) * room;
      node.sy = Math.round(share * height + node.row * 9);
    }
    // Nodes that stand too close for a name have none, by tier.
    this.spaces = new Map(fabric.tiers.map((tier) => [tier, this.space(tier)]));
  }

  space(tier) {
    const places = this.fabric.nodes
      .filter((node) => node.tier === tier && node.row === 0)
      .map((node) => node.sx)
      .sort((a, b) => a - b);
    const gaps = places.slice(1).map((place, at) => place - places[at]).filter((gap) => gap > 0.01);
    return Math.min(this.size.width, ...gaps);
  }

  drawCables(pen, ink) {
    const paths = ink.heat.map(() => new Path2D());
    for (const cable of this.fabric.cables) {
      if (!this.isSeen(cable)) continue;
      const { a, b } = cable;
      const [mx, my] = [(a.sx + b.sx) / 2, (a.sy + b.sy) / 2];
      for (const [side, node] of [a, b].entries()) {
        const path = paths[heatOf(this.loads[2 * cable.at + side])];
        path.moveTo(node.sx, node.sy);
        path.lineTo(mx, my);
      }
    }
    // Where they stand close, the many cool ones recede.
    const crowd = Math.min(1, Math.max(0.3, this.gap / 24));
    paths.forEach((path, heat) => {
      pen.lineWidth = WIDTHS[heat] * (heat < 3 ? crowd : 1);
      pen.strokeStyle = ink.heat[heat];
      pen.stroke(path);
    });
    this.drawBroken(pen, ink);
    if (!this.hasHosts()) this.drawHostLoads(pen, ink);
  }

  /** The load of the busier link of a cable. */
  loadOf({ at }) {
    return Math.max(this.loads[2 * at], this.loads[2 * at + 1]);
  }

  /** Whether hosts have room to be drawn one by one. */
  hasHosts() {
    return (this.spaces.get("host") ?? 0) >= 3;
  }

  /** The busiest link to a host of each leaf, as a bar below it, where hosts have no room. */
  drawHostLoads(pen, ink) {
    const most = new Map();
    for (const cable of this.fabric.cables) {
      const { a, b } = cable;
      const leaf = a.tier === "host" ? b : b.tier === "host" ? a : undefined;
      if (!leaf) continue;
      const load = this.loadOf(cable);
      most.set(leaf, Math.max(most.get(leaf) ?? 0, load));
    }
    const width = Math.max(1, this.gap * 0.7);
    const room = this.size.height * 0.26;
    for (const [leaf, load] of most) {
      pen.fillStyle = ink.heat[heatOf(load)];
      pen.fillRect(leaf.sx - width / 2, leaf.sy + 14, width, Math.min(1, load) * room);
    }
  }

  drawBroken(pen, ink) {
    const path = new Path2D();
    for (const cable of this.fabric.cables) {
      if (stateOf(cable) === "up" || !this.isSeen(cable)) continue;
      path.moveTo(cable.a.sx, cable.a.sy);
      path.lineTo(cable.b.sx, cable.b.sy);
    }
    pen.setLineDash([5, 4]);
    pen.lineWidth = 2;
    pen.strokeStyle = ink.bad;
    pen.stroke(path);
    pen.setLineDash([]);
  }

  drawShown(pen, ink) {
    const lines = (links, dash, colour) => {
      pen.setLineDash(dash);
      for (const [width, style] of [[7, ink.paper], [3.5, colour]]) {
        pen.lineWidth = width;
        pen.strokeStyle = style;
        pen.beginPath();
        for (const link of links ?? []) {
          const cable = this.fabric.cables[link >> 1];
          pen.moveTo(cable.a.sx, cable.a.sy);
          pen.lineTo(cable.b.sx, cable.b.sy);
        }
        pen.stroke();
      }
      pen.setLineDash([]);
    };
    lines(this.shown.was, [6, 5], ink.faint);
    lines(this.shown.links, [], ink.accent);
  }

  drawNodes(pen, ink) {
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const marked = this.marked();
    for (const node of this.fabric.nodes) {
      const space = this.spaces.get(node.tier);
      if (node.sx < -40 || node.sx > this.size.width + 40) continue;
      if (node.tier === "host" && !this.hasHosts() && !marked.has(node)) continue;
      this.drawNode(pen, ink, node, space, marked.has(node));
    }
  }

  drawNode(pen, ink, node, space, isMarked) {
    const isHost = node.tier === "host";
    const hasName = space > node.name.length * 7 + (isHost ? 6 : 12);
    const width = hasName ? Math.min(space - 6, 74) : Math.max(2, Math.min(isHost ? 7 : 14, space * 0.7));
    const height = hasName && !isHost ? 22 : isHost ? 7 : 14;
    const colour = { down: ink.bad, drained: ink.warn, returning: ink.warn }[node.state] ?? (isMarked ? ink.accent : ink.ink);
    if (isHost) {
      pen.fillStyle = isMarked ? ink.accent : ink.faint;
      pen.fillRect(node.sx - Math.min(width, 7) / 2, node.sy - 3.5, Math.min(width, 7), height);
    } else {
      // Too narrow for an outline.
      pen.fillStyle = width < 5 ? colour : ink.paper;
      pen.strokeStyle = colour;
      pen.lineWidth = isMarked || node.state !== "up" ? 2 : 1;
      pen.beginPath();
      pen.roundRect(node.sx - width / 2, node.sy - height / 2, width, height, Math.min(4, width / 2));
      pen.fill();
      if (width >= 5) pen.stroke();
    }
    const named = hasName || isMarked;
    if (!named) return;
    const below = isHost ? 13 : hasName ? 0.5 : -16;
    pen.fillStyle = isHost ? ink.faint : colour;
    pen.fillText(node.name, node.sx, node.sy + below);
  }

  marked() {
    const marked = new Set(this.shown?.nodes ?? []);
    for (const link of this.shown?.isPath ? this.shown.links : []) {
      const { a, b } = this.fabric.cables[link >> 1];
      marked.add(a).add(b);
    }
    return marked;
  }

  isSeen({ a, b }) {
    if ((a.tier === "host" || b.tier === "host") && !this.hasHosts()) return false;
    return Math.max(a.sx, b.sx) > 0 && Math.min(a.sx, b.sx) < this.size.width;
  }

  /** The node or cable at a point, whichever is meant. */
  at(x, y) {
    if (!this.size) return undefined;
    const distance = (node) => Math.hypot(node.sx - x, node.sy - y);
    const seen = this.fabric.nodes
      .filter((node) => node.tier !== "host" || this.hasHosts());
    const node = seen.reduce((a, b) => (a && distance(a) <= distance(b) ? a : b), undefined);
    if (node && (distance(node) < 9 || (Math.abs(node.sy - y) < 11 && Math.abs(node.sx - x) < 16))) {
      return { node };
    }
    let [best, cable] = [NEAR, undefined];
    for (const one of this.fabric.cables) {
      if (!this.isSeen(one)) continue;
      const far = away(one.a, one.b, x, y);
      // Of two that are as near, the busier one is meant.
      const bias = heatOf(this.loadOf(one));
      if (far - bias * 0.4 < best) [best, cable] = [far - bias * 0.4, one];
    }
    return cable && { cables: [cable] };
  }

  listen() {
    const { canvas } = this;
    let drag;
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        this.move((drag - event.offsetX) / canvas.clientWidth);
        drag = event.offsetX;
      } else if (this.fabric) this.hear.over(this.at(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointerdown", (event) => {
      drag = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
      if (this.fabric) this.hear.over(this.at(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointerup", () => { drag = undefined; });
    canvas.addEventListener("pointercancel", () => { drag = undefined; });
    canvas.addEventListener("pointerleave", () => this.hear.over(undefined));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(event.deltaX / canvas.clientWidth);
      else this.zoom(1.0015 ** event.deltaY, event.offsetX / canvas.clientWidth);
    }, { passive: false });
    const keys = {
      ArrowLeft: () => this.move(-0.15),
      ArrowRight: () => this.move(0.15),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1 / 0.7),
      0: () => this.all(),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
}

/** How far a point is from a line between two nodes. */
function away(a, b, x, y) {
  const [dx, dy] = [b.sx - a.sx, b.sy - a.sy];
  const along = ((x - a.sx) * dx + (y - a.sy) * dy) / (dx * dx + dy * dy || 1);
  const t = Math.min(1, Math.max(0, along));
  return Math.hypot(a.sx + t * dx - x, a.sy + t * dy - y);
}
