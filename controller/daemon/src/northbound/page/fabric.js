// The fabric as it is drawn: nodes with a place, cables with two directions.
//
// Pure. Places are a share of the width, 0 to 1, and a tier; what is on the screen is the map's
// business. Pods (leaves and spines that are joined without a core) stay together, so that zooming
// in on some leaves shows their spines as well.

const TIERS = ["core", "spine", "leaf", "host"];

/** Nodes and cables of a fabric document, and where each node is. */
export function arrange(document) {
  const nodes = new Map();
  for (const { name, tier } of document.switches ?? []) nodes.set(name, node(name, tier));
  for (const { name, gpus } of document.hosts ?? []) nodes.set(name, { ...node(name, "host"), gpus });
  const cables = (document.links ?? []).map(({ a, b, gbps }) => ({
    a: nodes.get(nodeOf(a)),
    b: nodes.get(nodeOf(b)),
    gbps,
  }));
  for (const { a, b } of cables) {
    a.joined.push(b);
    b.joined.push(a);
  }
  const tiers = TIERS.filter((tier) => [...nodes.values()].some((node) => node.tier === tier));
  place([...nodes.values()]);
  return { name: document.name, nodes, cables, tiers };
}

function node(name, tier) {
  return { name, tier, joined: [], x: 0.5, row: 0, state: "up", heat: 0 };
}

/** The node of an end such as `leaf1:4`. */
export function nodeOf(end) {
  return end.slice(0, end.lastIndexOf(":"));
}

function place(nodes) {
  const of = (tier) => nodes.filter((node) => node.tier === tier);
  const pods = podsOf(of("leaf"));
  const leaves = pods.flatMap((pod) => pod.leaves);
  leaves.forEach((leaf, at) => {
    leaf.x = (at + 0.5) / leaves.length;
    placeHosts(leaf, leaves.length);
  });
  for (const { leaves, spines } of pods) {
    const from = leaves[0].x, to = leaves.at(-1).x;
    const half = 0.5 * (to - from + leaves.length ** -1 * (to - from || 1));
    spread(spines, (from + to) / 2 - half, (from + to) / 2 + half);
  }
  spread(of("core"), 0, 1);
}

/** Leaves and spines that are joined without a core, in the order of the document. */
function podsOf(leaves) {
  const seen = new Set();
  const pods = [];
  for (const first of leaves) {
    if (seen.has(first)) continue;
    const pod = { leaves: [], spines: [] };
    const open = [first];
    seen.add(first);
    for (let node = open.shift(); node; node = open.shift()) {
      (node.tier === "leaf" ? pod.leaves : pod.spines).push(node);
      for (const next of node.joined) {
        if ((next.tier !== "leaf" && next.tier !== "spine") || seen.has(next)) continue;
        seen.add(next);
        open.push(next);
      }
    }
    pods.push(pod);
  }
  return pods;
}

function spread(nodes, from, to) {
  nodes.forEach((node, at) => { node.x = from + ((at + 0.5) / nodes.length) * (to - from); });
}

/** Hosts below their first leaf, in rows of up to eight. */
function placeHosts(leaf, leaves) {
  const hosts = leaf.joined.filter((node) => node.tier === "host" && node.joined[0] === leaf);
  const own = [...new Set(hosts)];
  const wide = Math.min(own.length, 8);
  own.forEach((host, at) => {
    host.x = leaf.x + (((at % wide) + 0.5) / wide - 0.5) * (0.86 / leaves);
    host.row = Math.floor(at / wide);
  });
}

/** Takes in the loads of all links: cable n has links 2n (from a to b) and 2n + 1 (back). */
export function load(fabric, links) {
  const byName = new Map();
  for (const node of fabric.nodes.values()) node.heat = 0;
  links.forEach((link, at) => {
    const cable = fabric.cables[at >> 1];
    cable[at % 2 ? "back" : "forth"] = link;
    byName.set(link.link, { cable, side: at % 2 });
    for (const node of [cable.a, cable.b]) node.heat = Math.max(node.heat, link.load);
  });
  fabric.byName = byName;
}

/** The load of a link, of one class or of all. */
export function loadOf(link, level) {
  if (!link) return 0;
  if (level === "all") return link.load;
  return link.levels.find((one) => one.level === level)?.load ?? 0;
}

/** The cables that lead from each of these nodes to the next, with their direction. */
export function between(fabric, names) {
  const legs = [];
  for (let at = 1; at < names.length; at++) {
    const [a, b] = [fabric.nodes.get(names[at - 1]), fabric.nodes.get(names[at])];
    const forth = fabric.cables.find((cable) => cable.a === a && cable.b === b);
    const back = forth ?? fabric.cables.find((cable) => cable.a === b && cable.b === a);
    if (back) legs.push({ cable: back, side: forth ? 0 : 1 });
  }
  return legs;
}
