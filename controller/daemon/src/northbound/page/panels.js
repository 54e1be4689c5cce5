// What stands beside the map: findings, jobs with their flows, GPU utilisation, links, switches.
//
// Each makes its panel from the model; pointing at a row points at the map. A list that is longer
// than anybody reads ends with how many more there are.

import { LINES, chart } from "./chart.js";
import { element, level, meter, percent, row, short, sureButton, table, time } from "./elements.js";
import { linkName, loadsOf, stateOf } from "./fabric.js";
import { heatOf } from "./surface.js";

const MOST = 100;
const EVENTS = 300;
const SEVERITIES = ["error", "warning", "info"];

/** Findings, the worst first; those that differ only in names and numbers are one. */
export function findings(panel, { findings: all, fabric, jobs }, act) {
  const groups = new Map();
  for (const one of all) {
    const key = `${one.severity} ${one.text.replace(/\d+(\.\d+)?/g, "#")}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  const order = [...groups.values()].sort((a, b) =>
    SEVERITIES.indexOf(a[0].severity) - SEVERITIES.indexOf(b[0].severity) || b.length - a.length);
  const target = (about) => {
    const name = about.replace(/^(job|switch|link|cable) /, "");
    if (fabric.byName.has(name)) return { kind: fabric.byName.get(name).tier === "host" ? "host" : "switch", name };
    if (jobs.some((job) => job.id === name)) return { kind: "job", name };
    const ends = name.split(/[>-]/).map((end) => end.split(":")[0]);
    const isCable = ({ a, b }) => (a.name === ends[0] && b.name === ends[1]) || (a.name === ends[1] && b.name === ends[0]);
    const cable = ends.length === 2 && fabric.cables.find(isCable);
    return cable ? { kind: "cable", name: `${cable.a.name}-${cable.b.name}` } : undefined;
  };
  const about = (one) => {
    const found = target(one.about);
    return found ? element("button", { type: "button", className: "link", onclick: () => act.go(found) }, one.about) : one.about;
  };
  const items = order.map((group) => {
    const [first] = group;
    const names = group.slice(0, 6).flatMap((one, at) => [at ? ", " : "", about(one)]);
    const rest = group.length > 6 ? ` and ${group.length - 6} more` : "";
    const item = element("li", { className: first.severity },
      element("b", {}, severities(first.severity, group.length)),
      element("div", {}, element("span", { className: "about" }, ...names, rest), " ", first.text));
    item.dataset.count = group.length;
    return item;
  });
  const calm = items.length ? undefined : note("Nothing needs attention.");
  refill(panel, element("ol", { className: "findings" }, ...items), ...(calm ? [calm] : []));
}

/** A severity, with the number of findings where there are several. */
function severities(severity, count) {
  if (count === 1) return severity;
  return `${count} ${severity}s`;
}

/** Jobs by rank; the chosen one with its flows. */
export function jobs(panel, { jobs, chosen, flows }, act) {
  const shown = jobs.slice(0, MOST);
  const beyond = jobs.slice(MOST).find((job) => job.id === chosen);
  if (beyond) shown.unshift(beyond);
  const rows = shown.flatMap((job) => {
    const seconds = job.reported_seconds ?? job.measured_iteration_seconds;
    const cells = [job.id, level(job.level), short(job.intensity), job.gpus, seconds?.toFixed(3) ?? "-",
      (job.forecast_seconds ?? job.alone_seconds).toFixed(3)];
    const made = row(cells, {
      point: () => act.pointJob(job.id),
      leave: act.leave,
      choose: () => act.choose(job.id),
    });
    made.dataset.job = job.id;
    made.title = [job.tenant && `tenant ${job.tenant}`, job.model, `alone ${job.alone_seconds.toFixed(4)} s`, job.start_shift && `takes turns, every ${job.start_shift.period_seconds.toFixed(4)} s`].filter(Boolean).join(", ");
    made.setAttribute("aria-expanded", String(job.id === chosen));
    if (job.profiled) made.cells[1].append(" *");
    if (job.id !== chosen) return [made];
    made.className = "chosen";
    return [made, ...flowRows(flows, act)];
  });
  const headings = ["job", "level", "FLOP/s", "GPUs", "takes s", "planned s"];
  refill(panel, rows.length
    ? table(headings, rows)
    : note("no jobs: a document tells of them, or they tell of themselves"));
  if (jobs.length > shown.length) panel.append(note(`${jobs.length - shown.length} more of lower rank; search finds them`));
  if (jobs.some((job) => job.profiled)) panel.append(note("* being profiled, in the highest level for that"));
}

/** Who chooses the path of a flow. */
export function pathChoice(flow) {
  return flow.pinned ? "pinned" : flow.sprayed ? "sprayed over all its paths" : "left to ECMP";
}

/** How many flows are known in which way, then the flows. */
function flowRows(flows, act) {
  if (!flows) return [wide("…")];
  const count = (identity) => flows.filter((flow) => flow.identity === identity).length;
  const kinds = [["announced", "announced"], ["learned", "learned"], ["pair", "known as a pair"]]
    .map(([kind, text]) => `${count(kind)} ${text}`);
  const pinned = flows.filter((flow) => flow.pinned).length;
  const summary = wide(`${flows.length} flows: ${kinds.join(", ")}; ${flows[0]?.sprayed ? "all sprayed" : `${pinned} pinned`}`);
  summary.classList.add("kinds");
  const rows = flows.slice(0, MOST).map((flow) => {
    const made = row([flow.flow, flow.sprayed ? "all its paths" : flow.path.slice(1, -1).join(" > ")], { point: () => act.pointFlow(flow), leave: act.leave });
    made.className = "flow";
    made.cells[1].colSpan = 5;
    made.title = `${flow.identity}, ${pathChoice(flow)}`;
    return made;
  });
  const rest = flows.length - rows.length;
  return [summary, ...rows, ...(rest > 0 ? [wide(`and ${rest} more flows`)] : [])];
}

/** GPU utilisation over time, of all jobs or of the chosen one; then of everybody. */
export function worth(panel, { worth: history, chosen, events }, act) {
  if (!history?.at_ms.length) return refill(panel, note("no sample yet; one is taken every five seconds"));
  const shown = history.jobs.find((job) => job.name === chosen) ?? history.total;
  const marks = events.filter(({ kind }) => /^(policy_|switch_|cable_|job_arr|job_left)/.test(kind));
  const legend = element("p", { className: "legend" },
    `${shown.name || "all jobs"}: `, ...LINES.map(([name, text]) => element("span", { className: name }, text)));
  const line = (series, name) => {
    const { means } = series;
    const points = (gain) => `${gain >= 0 ? "+" : ""}${(100 * gain).toFixed(1)}`;
    const isPlanned = means.forecast !== null && means.ecmp !== null;
    const planned = isPlanned ? `(${points(means.forecast - means.ecmp)})` : "-";
    const cells = [name, percent(means.measured), percent(means.forecast), percent(means.ecmp),
      means.measured_gain === undefined ? planned : points(means.measured_gain)];
    return row(cells, { point: () => {}, leave: () => {}, choose: () => act.choose(series === history.total ? chosen : series.name) });
  };
  const jobs = history.jobs.slice(0, MOST);
  const rows = [line(history.total, "all jobs"), ...history.tenants.map((one) => plain(line(one, `tenant ${one.name}`))),
    ...jobs.map((one) => line(one, one.name))];
  const more = history.jobs.length - jobs.length;
  return refill(panel, chart(history.at_ms, shown, marks), legend,
    table(["mean over this time", "measured", "planned", "ECMP", "gain"], rows),
    note(`${more > 0 ? `${more} more jobs. ` : ""}Share of GPU time that is computation. Planned and ECMP are forecasts of the fluid model. Gain: measured less ECMP; in brackets, where nothing is measured, planned less ECMP.`));
}

/** A row that cannot be chosen. */
function plain(made) {
  const copy = made.cloneNode(true);
  copy.removeAttribute("tabindex");
  return copy;
}

/** Links that carry something or are not up, the busiest first. */
export function links(panel, { fabric, soughtCable, canWrite }, of, act) {
  const loads = loadsOf(fabric, of);
  const busy = [];
  for (let link = 0; link < loads.length; link++) {
    if (loads[link] > 0 || fabric.cables[link >> 1].state !== "up") busy.push(link);
  }
  busy.sort((a, b) => loads[b] - loads[a] || a - b);
  const sought = soughtCable ? [2 * soughtCable.at, 2 * soughtCable.at + 1] : [];
  const shown = [...sought, ...busy.filter((link) => !sought.includes(link)).slice(0, MOST)];
  const rows = shown.map((link) => {
    const cable = fabric.cables[link >> 1];
    const made = row([
      linkName(fabric, link),
      stateOf(cable) === "up" ? meter(loads[link], `var(--heat-${heatOf(loads[link])})`) : state(stateOf(cable)),
      loads[link].toFixed(3),
      fabric.measured[link] < 0 ? "-" : fabric.measured[link].toFixed(3),
      ...(canWrite ? [drainButton(`${cable.a.name}-${cable.b.name}`, cable.state, act)] : []),
    ], { point: () => act.pointLink(link), leave: act.leave });
    if (sought.includes(link)) made.className = "chosen";
    return made;
  });
  refill(panel, table(["link", "busy", "planned", "counted", ...(canWrite ? [""] : [])], rows));
  panel.append(note(`${loads.length - rows.length} more carry ${busy.length > MOST ? "less" : "nothing"}`));
}

/** Switches: the one that is sought, then those that are not as they should be. */
export function switches(panel, { fabric, switches: lines, loads, sought, canWrite }, act) {
  const generation = loads?.generation;
  const known = new Map(lines.map((one) => [one.name, one]));
  const all = fabric.switches.map((node) => ({ node, line: known.get(node.name) }));
  const trouble = ({ node, line }) => (node === sought ? 8 : 0)
    + (node.state === "up" ? 0 : 4) + (line && line.verified_generation !== generation ? 2 : 0) + (line?.problems.length ? 1 : 0);
  all.sort((a, b) => trouble(b) - trouble(a));
  const made = all.slice(0, MOST).map(({ node, line }) => {
    const cells = [node.name, state(node.state), line?.mastership ?? "-", line?.verified_generation ?? "-", line?.entries_drifted ?? "-",
      ...(canWrite ? [drainButton(node.name, node.state, act)] : [])];
    const one = row(cells, { point: () => act.pointNode(node), leave: act.leave });
    one.title = line?.problems.join("\n") ?? "it has no P4Runtime address";
    one.dataset.switch = node.name;
    if (node === sought) one.className = "chosen";
    return one;
  });
  refill(panel, table(["switch", "state", "mastership", "holds", "drift", ...(canWrite ? [""] : [])], made));
  if (all.length > made.length) panel.append(note(`${all.length - made.length} more are as they should be`));
}

/** Queues that have lost, paused or marked packets, as the controller sorts them: the worst first. */
export function queues(panel, { fabric, queues: all }, act) {
  const made = all.slice(0, MOST).map((queue) => {
    const node = fabric.byName.get(queue.switch);
    const shown = (count) => count ?? "-";
    const pauses = `${shown(queue.pauses_received)} / ${shown(queue.pauses_sent)}`;
    const name = `${queue.switch}:${queue.port}${queue.neighbour ? `>${queue.neighbour}` : ""}`;
    const cells = [name, level(queue.level), shown(queue.dropped), pauses, shown(queue.marked)];
    const end = ({ a, b, aPort, bPort }) => (a === node && aPort === queue.port) || (b === node && bPort === queue.port);
    const cable = node?.cables.find(end);
    const point = cable ? () => act.pointLink(2 * cable.at + (cable.a === node ? 0 : 1)) : node && (() => act.pointNode(node));
    const one = row(cells, { point, leave: act.leave });
    one.title = name;
    one.dataset.queue = `${queue.switch}:${queue.port}:${queue.level}`;
    if (queue.dropped) one.className = "error";
    return one;
  });
  refill(panel, table(["queue", "level", "dropped", "pauses in / out", "marked"], made));
  if (!made.length) panel.append(note("No switch reports over gNMI that a queue has lost, paused or marked packets."));
  if (all.length > made.length) panel.append(note(`and ${all.length - made.length} more that counted less`));
}

function drainButton(name, now, act) {
  const action = now === "drained" ? "undrain" : "drain";
  return sureButton(action, `${action}: sure?`, () => act.drain(name, action));
}

/** Puts an event on top of the list. */
export function event(panel, happening) {
  const list = panel.querySelector("ol");
  const text = element("div", {}, happening.text);
  if (happening.moves?.length) text.append(moves(happening));
  const item = element("li", { className: happening.severity },
    element("time", { title: new Date(happening.at_ms).toISOString() }, time(happening.at_ms)), text);
  list.prepend(item);
  while (list.children.length > EVENTS) list.lastElementChild.remove();
}

/** Says that some events were not heard. */
export function missed(panel, count) {
  const text = element("div", {}, `${count} events are no longer kept`);
  panel.querySelector("ol").prepend(element("li", { className: "warning" }, element("time", {}, ""), text));
}

function moves({ moved, moves: some }) {
  const lines = some.map((move) => element("div", {},
    `${move.job} ${move.flow}: ${move.path.before.join(" > ")} → ${move.path.after.join(" > ")}`));
  const rest = moved - some.length;
  return element("details", {},
    element("summary", {}, "what moved"), ...lines, ...(rest > 0 ? [`and ${rest} more`] : []));
}

const state = (text) => element("span", { className: { up: "good", down: "error" }[text] ?? "warning" }, text);

const note = (text) => element("p", { className: "note" }, text);

const wide = (text) => element("tr", { className: "flow" }, element("td", { className: "wide", colSpan: 6 }, text));

/** New content at the place where the reader was, with the focus on what had it. */
function refill(panel, ...content) {
  const places = () => [...panel.querySelectorAll("tr[tabindex], button")];
  const focused = places().indexOf(document.activeElement);
  // Somebody is about to confirm something there.
  if (document.activeElement?.classList.contains("sure") && focused >= 0) return;
  const top = panel.scrollTop;
  panel.replaceChildren(...content);
  panel.scrollTop = top;
  if (focused >= 0) places()[focused]?.focus({ preventScroll: true });
}

/** What a link is and carries, in words. */
export function tell(fabric, link) {
  const cable = fabric.cables[link >> 1];
  const levels = [...fabric.levels].filter(([, loads]) => loads[link] > 0).map(([name, loads]) => `level ${name}: ${loads[link].toFixed(3)}`);
  const load = fabric.loads[link];
  const carries = load > 0 ? `busy ${load.toFixed(3)} (${levels.join(", ")})` : "idle";
  const counted = fabric.measured[link] < 0 ? "" : `, counted ${fabric.measured[link].toFixed(3)}`;
  const all = (fabric.on.get(link) ?? []).map((job) => fabric.jobs[job]);
  const names = all.length > 6 ? [...all.slice(0, 6), `${all.length - 6} more`] : all;
  return `${linkName(fabric, link)}  ${cable.gbps} Gbit/s, ${stateOf(cable)}, ${carries}${counted}${names.length ? `: ${names.join(", ")}` : ""}`;
}
