// What stands beside the map: jobs with their flows, links by load, switches, events.
//
// Each makes its panel from an answer of the controller; pointing at a row points at the map.

import { element, level, meter, row, short, table, time } from "./elements.js";
import { heatOf } from "./map.js";

/** Rows of a list that is longer than anybody reads. */
const MOST = 200;
const EVENTS = 300;

/** Jobs by rank; the chosen one with its flows. */
export function jobs(panel, { jobs, chosen, flows }, act) {
  const rows = jobs.flatMap((job) => {
    const cells = [job.id, level(job.level), short(job.intensity), job.gpus, job.alone_seconds.toFixed(4)];
    const made = row(cells, {
      point: () => act.pointJob(job.id),
      leave: act.leave,
      choose: () => act.choose(job.id),
    });
    made.dataset.job = job.id;
    made.setAttribute("aria-expanded", String(job.id === chosen));
    if (job.profiled) made.cells[1].append(" *");
    if (job.id !== chosen) return [made];
    made.className = "chosen";
    return [made, ...flowRows(flows, act)];
  });
  const headings = ["job", "level", "FLOP/s", "GPUs", "alone s"];
  refill(panel, rows.length
    ? table(headings, rows)
    : note("no jobs: a document tells of them, or they tell of themselves"));
  if (jobs.some((job) => job.profiled)) panel.append(note("* being profiled, in the highest level for that"));
}

function flowRows(flows, act) {
  if (!flows) return [wide("…")];
  const rows = flows.slice(0, MOST).map((flow) => {
    const name = `${flow.src}>${flow.dst}${flow.udp_src_port ? `:${flow.udp_src_port}` : ""}`;
    const way = flow.path.slice(1, -1).join(" > ");
    const made = row([name, way], { point: () => act.pointFlow(flow), leave: act.leave });
    made.className = "flow";
    made.cells[1].colSpan = 4;
    made.title = (flow.udp_src_port ? "announced, " : "known by its NICs, ") + (flow.pinned ? "pinned" : "left to ECMP");
    return made;
  });
  const rest = flows.length - rows.length;
  return rest > 0 ? [...rows, wide(`and ${rest} more flows`)] : rows;
}

/** Links that carry something or are not up, the busiest first. */
export function links(panel, links, of, act) {
  const busy = links.filter((link) => of(link) > 0 || link.state !== "up");
  busy.sort((a, b) => of(b) - of(a) || (a.link < b.link ? -1 : 1));
  const rows = busy.slice(0, MOST).map((link) => row([
    link.link,
    link.state === "up" ? meter(of(link), `var(--heat-${heatOf(of(link))})`) : state(link.state),
    of(link).toFixed(3),
    link.jobs.length,
  ], { point: () => act.pointLink(link), leave: act.leave }));
  const left = links.length - rows.length;
  refill(panel, table(["link", "busy", "load", "jobs"], rows));
  panel.append(note(`${left} more carry ${busy.length > MOST ? "less" : "nothing"}`));
}

/** Switches: those that are not as they should be first. */
export function switches(panel, { nodes, rows, generation }, act) {
  const known = new Map(rows.map((one) => [one.name, one]));
  const all = nodes.map((node) => ({ node, line: known.get(node.name) }));
  const trouble = ({ node, line }) =>
    (node.state === "up" ? 0 : 4) + (line && line.verified_generation !== generation ? 2 : 0) + (line?.problems.length ? 1 : 0);
  all.sort((a, b) => trouble(b) - trouble(a));
  const made = all.slice(0, MOST).map(({ node, line }) => {
    const cells = [node.name, state(node.state), line?.mastership ?? "-", line?.verified_generation ?? "-", line?.entries_drifted ?? "-"];
    const one = row(cells, { point: () => act.pointNode(node), leave: act.leave });
    one.title = line?.problems.join("\n") ?? "it has no P4Runtime address";
    return one;
  });
  refill(panel, table(["switch", "state", "mastership", "holds", "drift"], made));
  if (all.length > made.length) panel.append(note(`${all.length - made.length} more are as they should be`));
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

function moves({ moved, moves }) {
  const lines = moves.map((move) => element("div", {},
    `${move.job} ${move.flow}: ${move.path.before.join(" > ")} → ${move.path.after.join(" > ")}`));
  const rest = moved - moves.length;
  return element("details", {},
    element("summary", {}, "what moved"), ...lines, ...(rest > 0 ? [`and ${rest} more`] : []));
}

const state = (text) => element("span", { className: { up: "good", down: "error" }[text] ?? "warning" }, text);

const note = (text) => element("p", { className: "note" }, text);

const wide = (text) => element("tr", { className: "flow" }, element("td", { className: "wide", colSpan: 5 }, text));

/** New content at the place where the reader was, with the focus on the row that had it. */
function refill(panel, content) {
  const focused = [...panel.querySelectorAll("tr[tabindex]")].indexOf(document.activeElement);
  const top = panel.scrollTop;
  panel.replaceChildren(content);
  panel.scrollTop = top;
  if (focused >= 0) panel.querySelectorAll("tr[tabindex]")[focused]?.focus({ preventScroll: true });
}

/** What a link is and carries, in words. */
export function tell(link) {
  if (!link) return "";
  const levels = link.levels.map((one) => `level ${one.level}: ${one.load.toFixed(3)}`).join(", ");
  const carries = link.load > 0 ? `busy ${link.load.toFixed(3)} (${levels})` : "idle";
  const jobs = link.jobs.length > 6 ? [...link.jobs.slice(0, 6), `${link.jobs.length - 6} more`] : link.jobs;
  return `${link.link}  ${link.gbps} Gbit/s, ${link.state}, ${carries}${jobs.length ? `: ${jobs.join(", ")}` : ""}`;
}

