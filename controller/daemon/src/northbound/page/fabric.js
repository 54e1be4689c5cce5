// The fabric as it is drawn: nodes with a place, cables with two links, and what links carry.
//
// Pure. Cable n has link 2n from its first end and link 2n + 1 back; loads are arrays by link, so
// that a table of some thousand loads is taken in at once. Places are a share of the width, 0 to 1,
// and a tier; the maps decide which part is on the screen.

const TIERS = ["core", "spine", "leaf", "host"];

/** Beyond either, a graph of the fabric is a hairball. */
const MANY_SWITCHES = 64;
const MANY_CABLES = 500;

/** Nodes and cables of a graph as the controller answers it, and where each node is. */
export function arrange(graph) {
  const switches = graph.switches.map((name, at) => node(at, name, graph.tiers[at], 0));
  const hosts = graph.hosts.map((name, at) => node(at, name, "host", graph.gpus[at]));
  const nodes = [...switches, ...hosts];
  const cables = graph.cables.map(([a, aPort, b, bPort], at) => {
    return { at, a: nodes[a], aPort, b: nodes[b], bPort, gbps: graph.gbps[at], state: "up" };
  });
  for (const cable of cables) {
    cable.a.cables.push(cable);
    cable.b.cables.push(cable);
  }
  const between = cables.filter(({ a, b }) => a.tier !== "host" && b.tier !== "host").length;
  const fabric = {
    name: graph.name, nodes, switches, hosts, cables,
    tiers: TIERS.filter((tier) => nodes.some((one) => one.tier === tier)),
    pods: podsOf(switches.filter((one) => one.tier === "leaf")),
    byName: new Map(nodes.map((one) => [one.name, one])),
    isLarge: switches.length > MANY_SWITCHES || between > MANY_CABLES,
    jobs: [], on: new Map(), levels: new Map(),
  };
  place(fabric);
  clearLoads(fabric);
  return fabric;
}

function node(number, name, tier, gpus) {
  return { number, name, tier, gpus, cables: [], x: 0.5, row: 0, state: "up" };
}

function clearLoads(fabric) {
  fabric.loads = new Float32Array(2 * fabric.cables.length);
  fabric.measured = new Float32Array(2 * fabric.cables.length).fill(-1);
  fabric.on = new Map();
  fabric.levels = new Map();
  for (const cable of fabric.cables) cable.state = "up";
  for (const one of fabric.switches) one.state = "up";
}

/** Takes in a table of loads and states. */
export function takeLoads(fabric, table) {
  clearLoads(fabric);
  fabric.jobs = table.jobs;
  table.links.forEach((link, at) => {
    fabric.loads[link] = table.loads[at];
    fabric.measured[link] = table.measured[at] ?? -1;
    if (table.on[at].length) fabric.on.set(link, table.on[at]);
  });
  for (const { level, links, loads } of table.levels) {
    const all = new Float32Array(fabric.loads.length);
    links.forEach((link, at) => { all[link] = loads[at]; });
    fabric.levels.set(level, all);
  }
  for (const { part, state } of table.cable_states) fabric.cables[part].state = state;
  for (const { part, state } of table.switch_states) fabric.switches[part].state = state;
}

/** Whether a table is about this graph. */
export function fits(fabric, table) {
  return fabric.nodes.length === table.nodes && fabric.cables.length === table.cables;
}

/** The planned loads by link, of one level or of all, or those that switches count. */
export function loadsOf(fabric, level) {
  if (level === "measured") return fabric.measured.map((load) => Math.max(load, 0));
  return level === "all" ? fabric.loads : fabric.levels.get(level) ?? new Float32Array(fabric.loads.length);
}

/** The state of a cable, with those of the switches at its ends. */
export function stateOf({ a, b, state }) {
  const states = [state, a.state, b.state];
  return ["down", "drained", "returning"].find((one) => states.includes(one)) ?? "up";
}

/** The name of a link, such as `leaf1:4>spine1:1`. */
export function linkName(fabric, link) {
  const { a, aPort, b, bPort } = fabric.cables[link >> 1];
  return link & 1 ? `${b.name}:${bPort}>${a.name}:${aPort}` : `${a.name}:${aPort}>${b.name}:${bPort}`;
}

/** The links that a job has something on. */
export function linksOf(fabric, job) {
  const number = fabric.jobs.indexOf(job);
  return [...fabric.on].filter(([, jobs]) => jobs.includes(number)).map(([link]) => link);
}

/** The links that lead from each of these nodes to the next. */
export function between(fabric, names) {
  const links = [];
  for (let at = 1; at < names.length; at++) {
    const [from, to] = [fabric.byName.get(names[at - 1]), fabric.byName.get(names[at])];
    const cable = from?.cables.find(({ a, b }) => a === to || b === to);
    if (cable) links.push(2 * cable.at + (cable.a === from ? 0 : 1));
  }
  return links;
}

function place({ nodes, pods, tiers }) {
  const leaves = pods.flatMap((pod) => pod.leaves);
  leaves.forEach((leaf, at) => {
    leaf.x = (at + 0.5) / leaves.length;
    placeHosts(leaf, leaves.length);
  });
  for (const { leaves: own, spines } of pods) {
    const from = own[0].x, to = own.at(-1).x;
    const half = 0.5 * (to - from + leaves.length ** -1 * (to - from || 1));
    spread(spines, (from + to) / 2 - half, (from + to) / 2 + half);
  }
  if (tiers.includes("core")) spread(nodes.filter((one) => one.tier === "core"), 0, 1);
}

/** Leaves and spines that are joined without a core, in the order of the document. */
function podsOf(leaves) {
  const seen = new Set();
  const pods = [];
  for (const first of leaves) {
    if (seen.has(first)) continue;
    seen.add(first);
    const found = [first];
    for (const one of found) {
      for (const { a, b } of one.cables) {
        const next = a === one ? b : a;
        if ((next.tier !== "leaf" && next.tier !== "spine") || seen.has(next)) continue;
        seen.add(next);
        found.push(next);
      }
    }
    const tier = (name) => found.filter((one) => one.tier === name).sort((a, b) => a.number - b.number);
    pods.push({ leaves: tier("leaf"), spines: tier("spine") });
  }
  return pods;
}

function spread(nodes, from, to) {
  nodes.forEach((one, at) => { one.x = from + ((at + 0.5) / nodes.length) * (to - from); });
}

/** Hosts below their first leaf, in rows of up to eight. */
function placeHosts(leaf, leaves) {
  const hosts = leaf.cables.map(({ a, b }) => (a === leaf ? b : a)).filter((one) => one.tier === "host");
  const own = [...new Set(hosts)].filter(({ cables: [{ a, b }] }) => a === leaf || b === leaf);
  const wide = Math.min(own.length, 8);
  own.forEach((host, at) => {
    host.x = leaf.x + (((at % wide) + 0.5) / wide - 0.5) * (0.86 / leaves);
    host.row = Math.floor(at / wide);
  });
}
