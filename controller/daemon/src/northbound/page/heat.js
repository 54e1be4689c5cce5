// A large fabric as a heat map: a block for each pod, a column for each leaf, a row for each spine.
//
// A cell is the cables between one leaf and one spine, with the heat of the busiest link. The row
// below has the links to the hosts of each leaf, the column on the left those of each spine to the
// cores. A switch that is not up is a mark on its row or column, not a hundred broken cables.
// Cells are drawn heat by heat.

import { loadsOf } from "./fabric.js";
import { Surface, heatOf } from "./surface.js";

const MARGIN = { left: 58, right: 14, top: 16, bottom: 22 };
/** Of the width and the height of a cell, between the spines and what stands beside them. */
const APART = 0.6;
const MOST_ZOOM = 40;
/** Pixels of a cell's height, unless it is wide. */
const MOST_TALL = 36;

export class HeatMap extends Surface {
  constructor(canvas, hear) {
    super(canvas);
    this.hear = hear;
    this.view = { x: 0, y: 0, scale: 1 };
    this.cursor = undefined;
    this.listen();
  }

  show(fabric) {
    if (this.fabric !== fabric) {
      this.blocks = fabric.pods.map((pod, at) => block(fabric, pod, at));
      this.view = { x: 0, y: 0, scale: 1 };
      this.cursor = undefined;
    }
    super.show(fabric);
  }

  /** Shows `factor` times as much, around a share of the canvas. */
  zoom(factor, x = 0.5, y = 0.5) {
    const { view } = this;
    const scale = Math.min(MOST_ZOOM, Math.max(1, view.scale / factor));
    const grown = scale / view.scale;
    this.look((x + view.x) * grown - x, (y + view.y) * grown - y, scale);
  }

  /** Shows the part beside this one; shares of the canvas. */
  move(x, y = 0) {
    this.look(this.view.x + x, this.view.y + y, this.view.scale);
  }

  all() {
    this.look(0, 0, 1);
  }

  look(x, y, scale) {
    const within = (at) => Math.min(scale - 1, Math.max(0, at));
    this.view = { x: within(x), y: within(y), scale };
    this.wake();
  }

  paint(pen, ink) {
    this.loads = loadsOf(this.fabric, this.level);
    this.arrange();
    const few = this.shown && this.cellsOf(this.shown);
    this.drawCells(pen, ink, few);
    this.drawStates(pen, ink);
    if (this.shown?.nodes) this.drawLines(pen, ink);
    if (this.cursor) this.drawCursor(pen, ink);
    this.drawNames(pen, ink);
  }

  /** Where each block and its cells are: as many columns of blocks as make the cells largest. */
  arrange() {
    const { blocks, view } = this;
    const [width, height] = [this.size.width * view.scale, this.size.height * view.scale];
    const wide = Math.max(...blocks.map((one) => one.columns));
    const tall = Math.max(...blocks.map((one) => one.rows));
    const shape = (across) => {
      const down = Math.ceil(blocks.length / across);
      const w = (width - MARGIN.left - MARGIN.right) / across - (across > 1 ? 12 : 0);
      const h = (height - MARGIN.top - MARGIN.bottom) / down - (down > 1 ? 20 : 0);
      const cell = { w: w / wide, h: Math.min(h / tall, Math.max(MOST_TALL, (w / wide) * 3)) };
      return { across, down, cell, size: Math.min(cell.w, cell.h) };
    };
    const shapes = blocks.map((_, at) => shape(at + 1));
    this.shape = shapes.reduce((a, b) => (b.size > a.size ? b : a));
    const { across, down, cell } = this.shape;
    const pitch = { x: (width - MARGIN.left - MARGIN.right) / across, y: (height - MARGIN.top - MARGIN.bottom) / down };
    const [left, top] = [view.x * this.size.width, view.y * this.size.height];
    blocks.forEach((one, at) => {
      one.x = MARGIN.left + (at % across) * pitch.x - left;
      one.y = MARGIN.top + Math.floor(at / across) * pitch.y - top;
    });
    this.cell = cell;
  }

  /** The rectangle of a cell. */
  box(one, { column, row }) {
    const { w, h } = this.cell;
    return [one.x + column * w, one.y + row * h, w, h];
  }

  loadOf(cell) {
    let most = 0;
    for (const link of cell.links) most = Math.max(most, this.loads[link]);
    return most;
  }

  /** The cells with something of what is shown. */
  cellsOf({ links = [], was = [] }) {
    const some = new Set([...links, ...was].map((link) => link >> 1));
    return (cell) => cell.links.some((link) => some.has(link >> 1));
  }

  drawCells(pen, ink, isShown) {
    const heats = ink.heat.map(() => [[], []]);
    const gap = this.cell.w > 6 && this.cell.h > 6 ? 1 : this.cell.w > 3 ? 0.4 : 0;
    for (const one of this.blocks) {
      for (const cell of one.cells) {
        const [x, y, w, h] = this.box(one, cell);
        if (x > this.size.width || y > this.size.height || x + w < 0 || y + h < 0) continue;
        const strong = !isShown || isShown(cell);
        heats[heatOf(this.loadOf(cell))][strong ? 1 : 0].push(x, y);
      }
    }
    const [w, h] = [this.cell.w - gap, this.cell.h - gap];
    heats.forEach(([weak, strong], heat) => {
      pen.fillStyle = ink.heat[heat];
      pen.globalAlpha = 0.22;
      for (let at = 0; at < weak.length; at += 2) pen.fillRect(weak[at], weak[at + 1], w, h);
      pen.globalAlpha = 1;
      for (let at = 0; at < strong.length; at += 2) pen.fillRect(strong[at], strong[at + 1], w, h);
    });
  }

  /** Cables that are not up as crossed cells; switches that are not as a line over all their cells. */
  drawStates(pen, ink) {
    const [bad, warn] = [new Path2D(), new Path2D()];
    for (const one of this.blocks) {
      for (const cell of one.cells) {
        const broken = cell.cables.find(({ state }) => state !== "up");
        if (!broken) continue;
        const [x, y, w, h] = this.box(one, cell);
        const path = broken.state === "down" ? bad : warn;
        path.moveTo(x, y);
        path.lineTo(x + w, y + h);
        path.moveTo(x + w, y);
        path.lineTo(x, y + h);
      }
      for (const line of one.lines) {
        if (line.node.state === "up") continue;
        const [x, y, w, h] = this.span(one, line);
        const path = line.node.state === "down" ? bad : warn;
        path.rect(x + 0.5, y + 0.5, w - 1, h - 1);
        path.moveTo(x, y + h / 2);
        if (w > h) path.lineTo(x + w, y + h / 2);
      }
    }
    pen.lineWidth = 1.5;
    pen.strokeStyle = ink.warn;
    pen.stroke(warn);
    pen.strokeStyle = ink.bad;
    pen.stroke(bad);
  }

  /** All the cells of a switch. */
  span(one, { row, column }) {
    const { w, h } = this.cell;
    return row === undefined
      ? [one.x + column * w, one.y, w, one.spines * h]
      : [one.x + one.first * w, one.y + row * h, one.leaves * w, h];
  }

  /** Rows and columns of the nodes that are shown; a host is the column of its leaf. */
  drawLines(pen, ink) {
    const leafOf = ({ tier, cables: [first] }) => tier === "host" && [first.a, first.b];
    const wanted = new Set(this.shown.nodes.flatMap((node) => [node, ...(leafOf(node) || [])]));
    pen.lineWidth = 2;
    pen.strokeStyle = ink.accent;
    for (const one of this.blocks) {
      for (const line of one.lines) {
        if (wanted.has(line.node)) pen.strokeRect(...this.span(one, line));
      }
    }
  }

  drawCursor(pen, ink) {
    const [x, y, w, h] = this.box(this.cursor.block, this.cursor.cell);
    pen.lineWidth = 2;
    pen.strokeStyle = ink.accent;
    pen.strokeRect(x - 1, y - 1, w + 1, h + 1);
  }

  drawNames(pen, ink) {
    const { w, h } = this.cell;
    pen.textBaseline = "middle";
    pen.fillStyle = ink.faint;
    const colour = ({ state }) => ({ down: ink.bad, drained: ink.warn, returning: ink.warn })[state] ?? ink.faint;
    for (const one of this.blocks) {
      if (one.y > this.size.height || one.y + one.rows * h < 0) continue;
      if (this.blocks.length > 1) this.drawTitle(pen, one, ink);
      if (h >= 11 && this.shape.across === 1) this.drawSpines(pen, one, colour);
      const every = Math.ceil((Math.max(...one.lines.map(({ node }) => node.name.length)) * 7 + 10) / w);
      if (this.blocks.length > 1 && every > 2) continue;
      pen.textAlign = "center";
      for (const { node, column } of one.lines) {
        if (column === undefined || (column - one.first) % every) continue;
        pen.fillStyle = colour(node);
        const x = Math.max(26, one.x + (column + 0.5) * w);
        pen.fillText(node.name, x, one.y + one.rows * h + 9);
      }
    }
  }

  drawTitle(pen, one, ink) {
    pen.textAlign = "left";
    pen.fillStyle = ink.faint;
    const room = one.columns * this.cell.w;
    const text = [one.title, one.short].find((name) => pen.measureText(name).width <= room);
    if (text) pen.fillText(text, one.x + one.first * this.cell.w, one.y - 8);
  }

  drawSpines(pen, one, colour) {
    const { h } = this.cell;
    pen.textAlign = "right";
    for (const { node, row } of one.lines) {
      if (row === undefined) continue;
      pen.fillStyle = colour(node);
      pen.fillText(node.name, Math.max(MARGIN.left, one.x) - 5, one.y + (row + 0.5) * h);
    }
    pen.fillStyle = colour({});
    pen.fillText("hosts", Math.max(MARGIN.left, one.x) - 5, one.y + (one.rows - 0.5) * h);
  }

  /** The cell at a point. */
  at(x, y) {
    for (const one of this.blocks ?? []) {
      const found = one.cells.find((cell) => {
        const [left, top, w, h] = this.box(one, cell);
        return x >= left && x < left + w && y >= top && y < top + h;
      });
      if (found) return { block: one, cell: found };
    }
    return undefined;
  }

  /** Moves the cursor by cells, and says what is there. */
  step(columns, rows) {
    const from = this.cursor ?? { block: this.blocks[0], cell: this.blocks[0].cells[0] };
    const [x, y, w, h] = this.box(from.block, from.cell);
    const reach = [0.5, 1.3, 2.3, 6].map((far) => this.at(x + w / 2 + columns * w * (far + 0.4), y + h / 2 + rows * h * (far + 0.4)));
    this.cursor = this.cursor ? reach.find((found) => found && found.cell !== from.cell) ?? from : from;
    this.tell(this.cursor);
    this.wake();
  }

  tell(found) {
    this.hear.over(found && { cables: found.cell.cables });
  }

  listen() {
    const { canvas } = this;
    let drag;
    canvas.addEventListener("pointermove", ({ offsetX: x, offsetY: y }) => {
      if (drag) this.move((drag.x - x) / canvas.clientWidth, (drag.y - y) / canvas.clientHeight);
      else if (this.blocks && this.cell) this.tell(this.at(x, y));
      if (drag) drag = { x, y };
    });
    canvas.addEventListener("pointerdown", (event) => {
      if (this.view.scale > 1) drag = { x: event.offsetX, y: event.offsetY };
      canvas.setPointerCapture(event.pointerId);
      this.cursor = this.at(event.offsetX, event.offsetY);
      this.tell(this.cursor);
      this.wake();
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { drag = undefined; });
    canvas.addEventListener("pointerleave", () => this.tell(this.cursor));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight];
      this.zoom(1.0015 ** event.deltaY, x, y);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || !this.blocks || !this.cell) return;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const keys = { "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), 0: () => this.all() };
    const arrow = arrows[event.key];
    if (!arrow && !keys[event.key]) return;
    event.preventDefault();
    if (!arrow) keys[event.key]();
    else if (event.shiftKey) this.move(arrow[0] * 0.15, arrow[1] * 0.15);
    else this.step(...arrow);
  }
}

/** The cells of a pod, in columns and rows. */
function block(fabric, { leaves, spines }, at) {
  const column = new Map(leaves.map((leaf, number) => [leaf, number]));
  const row = new Map(spines.map((spine, number) => [spine, number]));
  const first = fabric.tiers.includes("core") ? 1 + APART : 0;
  const below = spines.length + (spines.length ? APART : 0);
  const cells = new Map();
  const add = (key, place, cable) => {
    const cell = cells.get(key) ?? { ...place, cables: [], links: [] };
    cell.cables.push(cable);
    cell.links.push(2 * cable.at, 2 * cable.at + 1);
    cells.set(key, cell);
  };
  for (const spine of spines) {
    for (const cable of spine.cables) {
      const other = cable.a === spine ? cable.b : cable.a;
      const key = other.tier === "core" ? `core ${row.get(spine)}` : `${column.get(other)} ${row.get(spine)}`;
      const place = other.tier === "core" ? 0 : first + column.get(other);
      add(key, { column: place, row: row.get(spine) }, cable);
    }
  }
  for (const leaf of leaves) {
    for (const cable of leaf.cables) {
      const other = cable.a === leaf ? cable.b : cable.a;
      if (other.tier === "host") add(`host ${column.get(leaf)}`, { column: first + column.get(leaf), row: below }, cable);
    }
  }
  const lines = [
    ...spines.map((node, number) => ({ node, row: number })),
    ...leaves.map((node, number) => ({ node, column: first + number })),
  ];
  const names = leaves.length > 1 ? `${leaves[0].name} to ${leaves.at(-1).name}` : leaves[0].name;
  return {
    cells: [...cells.values()], lines, first, title: `pod ${at + 1}: ${names}`, short: `pod ${at + 1}`,
    leaves: leaves.length, spines: spines.length, columns: first + leaves.length, rows: below + 1,
  };
}
