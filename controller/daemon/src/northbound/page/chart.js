// GPU utilisation over time as a small chart, with the events that may explain it.

const NS = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [420, 150];
const PLOT = { left: 34, right: 8, top: 8, bottom: 20 };

/** The lines of a chart, in the order of the legend. */
export const LINES = [["measured", "measured"], ["forecast", "forecast"], ["ecmp", "under ECMP"]];

function shape(tag, attributes, text) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A chart of one series; `marks` are times with a text. */
export function chart(times, series, marks) {
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img" });
  svg.append(shape("title", {}, `GPU utilisation ${series.name || "of all jobs"} over time`));
  if (!times.length) return svg;
  const [from, to] = [times[0], Math.max(times.at(-1), times[0] + 1)];
  const x = (at) => PLOT.left + ((at - from) / (to - from)) * (WIDTH - PLOT.left - PLOT.right);
  const y = (share) => PLOT.top + (1 - share) * (HEIGHT - PLOT.top - PLOT.bottom);
  for (const share of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "grid", x1: PLOT.left, x2: WIDTH - PLOT.right, y1: y(share), y2: y(share) }));
    svg.append(shape("text", { class: "tick", x: PLOT.left - 4, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}%`));
  }
  for (const [at, anchor] of [[from, "start"], [to, "end"]]) {
    const text = new Date(at).toLocaleTimeString([], { hour12: false });
    svg.append(shape("text", { class: "tick", x: x(at), y: HEIGHT - 5, "text-anchor": anchor }, text));
  }
  for (const { at_ms: at, text } of marks.filter((mark) => mark.at_ms >= from && mark.at_ms <= to)) {
    const mark = shape("line", { class: "mark", x1: x(at), x2: x(at), y1: PLOT.top, y2: y(0) });
    mark.append(shape("title", {}, text));
    svg.append(mark);
  }
  for (const [name] of [...LINES].reverse()) {
    const path = line(series[name], (at) => x(times[series.first + at]), y);
    svg.append(shape("path", { class: `line ${name}`, d: path }));
  }
  return svg;
}

/** A path through the values that are known; a lone one is a short stroke. */
function line(values, x, y) {
  let path = "";
  values.forEach((value, at) => {
    if (value === null) return;
    const goesOn = at > 0 && values[at - 1] !== null;
    path += `${goesOn ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!goesOn && (values[at + 1] ?? null) === null) path += "h2";
  });
  return path;
}
