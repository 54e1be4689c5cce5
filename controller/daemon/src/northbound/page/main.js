// The page: one model of what the controller answers, the maps and the panels that show it.
//
// Events say when to ask again; the page always shows a whole answer, never one put together from
// events, so a page that missed some is right again with the next. An answer that has not changed
// costs nothing, and one that has is taken in piece by piece, each in a frame of its own.

import { ask, askText, follow, logIn, logOut, session } from "./controller.js";
import { element } from "./elements.js";
import { arrange, between, fits, linksOf, stateOf, takeLoads } from "./fabric.js";
import { inFrame, spend, spent } from "./frames.js";
import { FabricGraph } from "./graph.js";
import { HeatMap } from "./heat.js";
import * as panels from "./panels.js";
import * as policy from "./policy.js";
import * as search from "./search.js";

/** Whatever comes within this time is one reason to ask. */
const GATHER_MS = 200;
/** Between two looks at what changes without an event, by answer. */
const AGAIN_MS = { loads: 2000, jobs: 4000, worth: 5000, switches: 10000, queues: 10000, findings: 10000 };

const PATHS = {
  loads: "/v1/link-loads", jobs: "/v1/jobs", switches: "/v1/switches", queues: "/v1/queues", findings: "/v1/findings",
  worth: "/v1/utilization?samples=120",
};

const at = (id) => document.getElementById(id);

const model = {
  fabric: undefined, loads: undefined, jobs: [], switches: [], queues: [], findings: [], events: [],
  worth: undefined, chosen: undefined, flows: undefined, sought: undefined, canWrite: false,
};

const maps = {
  graph: new FabricGraph(at("graph"), { over: pointAt }),
  heat: new HeatMap(at("heat"), { over: pointAt }),
};
let view = "graph";
/** Whether nothing is pointed at. */
let isResting = true;
const map = () => maps[view];

const act = {
  leave: () => point(undefined, ""),
  pointJob: (id) => point({ links: linksOf(model.fabric, id) }, `job ${id}`),
  pointFlow: (flow) => point({ links: flow.links, isPath: true },
    `${flow.flow} of ${model.chosen}, ${flow.identity}, ${panels.pathChoice(flow)}\n${flow.path.join(" > ")}`),
  pointMove: ({ job, src, dst, path }) => {
    const [was, links] = [path.before, path.after].map((names) => between(model.fabric, names));
    point({ links, was, isPath: true }, `${src}>${dst} of ${job}\nnow ${path.before.join(" > ")}\nthen ${path.after.join(" > ")}`);
  },
  pointLink: (link) => point({ links: [link], isPath: true }, panels.tell(model.fabric, link)),
  pointNode: (node) => point({ nodes: [node] }, describe(node)),
  choose: async (id) => {
    model.chosen = model.chosen === id ? undefined : id;
    model.flows = undefined;
    fill("jobs");
    fill("worth");
    if (model.chosen) await readFlows();
  },
  /** Goes to whatever has this name. */
  go: (found) => goTo(found),
  drain: async (name, action) => {
    await ask("/v1/policy/apply", { change: { edits: [{ action, name }] }, author: author(), reason: "from the page" });
    refresh();
  },
};

const author = () => (model.name ? "" : "page");

/** Shows some links and nodes on the map, and says what they are. */
function point(shown, text) {
  isResting = !shown;
  map().point(shown ?? resting());
  at("about").textContent = text || restingText() || "\u00a0";
}

/** The details while nothing is pointed at: those of the chosen job or part. */
function resting() {
  if (model.chosen && model.fabric) return { links: linksOf(model.fabric, model.chosen) };
  return model.sought && { nodes: [model.sought] };
}

function restingText() {
  if (model.chosen) return `job ${model.chosen}`;
  return model.sought ? describe(model.sought) : "";
}

/** What the pointer is over on the map. */
function pointAt(found) {
  if (!found) point(undefined, "");
  else if (found.node) act.pointNode(found.node);
  else point({ links: found.cables.flatMap(({ at: n }) => [2 * n, 2 * n + 1]), isPath: view === "graph" }, tellCables(found.cables));
}

function tellCables(cables) {
  const { loads } = model.fabric;
  const links = cables.flatMap((cable) => [2 * cable.at, 2 * cable.at + 1]).sort((a, b) => loads[b] - loads[a]);
  const more = links.length > 3 ? [`and ${links.length - 3} more links, none busier`] : [];
  return [...links.slice(0, 3).map((link) => panels.tell(model.fabric, link)), ...more].join("\n");
}

function describe(node) {
  const line = model.switches.find((one) => one.name === node.name);
  const parts = [`${node.name}: ${node.tier}, ${node.state}`];
  if (node.gpus) parts.push(`${node.gpus} GPUs`);
  if (line) parts.push(`${line.mastership}, holds generation ${line.verified_generation ?? "none"}, ${line.verified_entries ?? 0} entries`);
  return [parts.join(", "), ...(line?.problems ?? [])].join("\n");
}

async function goTo({ kind, name }) {
  model.sought = undefined;
  if (kind === "job") {
    tab("jobs");
    if (model.chosen !== name) await act.choose(name);
    point(undefined, "");
    at("jobs").querySelector("tr.chosen")?.focus();
    return;
  }
  if (model.chosen) await act.choose(model.chosen);
  if (kind === "cable") {
    const cable = model.fabric.cables.find(({ a, b }) => `${a.name}-${b.name}` === name);
    tab("links");
    model.soughtCable = cable;
    fill("links");
    act.pointLink(2 * cable.at);
    return;
  }
  model.sought = model.fabric.byName.get(name);
  if (kind === "switch") tab("switches");
  fill("switches");
  point(undefined, "");
}

/** Fills a panel, if anybody sees it. */
function fill(name) {
  if (!model.fabric || at(name).hidden) return;
  inFrame(`fill ${name}`, {
    findings: () => panels.findings(at("findings"), model, act),
    jobs: () => panels.jobs(at("jobs"), model, act),
    worth: () => panels.worth(at("worth"), model, act),
    links: () => panels.links(at("links"), model, map().level, act),
    switches: () => panels.switches(at("switches"), model, act),
    queues: () => panels.queues(at("queues"), model, act),
    events: () => {},
    policy: () => {},
  }[name]);
}

/** What follows from a new answer. */
const taken = {
  loads: () => {
    if (!fits(model.fabric, model.loads)) return readGraph();
    takeLoads(model.fabric, model.loads);
    showFacts();
    showLevels();
    map().show(model.fabric);
    // The chosen job may have other paths now.
    if (isResting) map().point(resting());
    fill("links");
    fill("switches");
    return undefined;
  },
  jobs: () => { showFacts(); fill("jobs"); },
  switches: () => fill("switches"),
  queues: () => fill("queues"),
  findings: () => {
    const bad = model.findings.filter((one) => one.severity !== "info");
    const worst = model.findings.some((one) => one.severity === "error") ? "error" : bad.length ? "warning" : "";
    at("tab-findings").replaceChildren("Findings", ...(bad.length ? [element("b", { className: worst }, ` ${bad.length}`)] : []));
    fill("findings");
  },
  worth: () => fill("worth"),
};

function showFacts() {
  const { fabric, jobs, loads } = model;
  const holding = loads?.generation && loads.switches ? `; ${loads.verified} of ${loads.switches} hold generation ${loads.generation}` : "; no switch holds a plan yet";
  at("facts").textContent = `${fabric.name}: ${fabric.switches.length} switches, ${fabric.hosts.length} hosts, `
    + `${jobs.length} ${jobs.length === 1 ? "job" : "jobs"}${loads ? holding : ""}`;
}

/** What the map shows: planned load of all levels or of one that carries something, or what switches count. */
function showLevels() {
  const counted = model.fabric.measured.some((load) => load >= 0) ? ["measured"] : [];
  const levels = ["all", ...model.fabric.levels.keys(), ...counted];
  const group = at("levels");
  if (group.dataset.levels === levels.join()) return;
  group.dataset.levels = levels.join();
  if (!levels.includes(map().level)) map().of("all");
  const choose = (level) => {
    for (const one of Object.values(maps)) one.of(level);
    check(group, (one) => one.dataset.level === String(level));
    fill("links");
  };
  group.replaceChildren(...levels.map((level) => {
    const name = { all: "all levels", measured: "measured" }[level] ?? `level ${level}`;
    const one = element("button", { type: "button", role: "radio", onclick: () => choose(level) }, name);
    one.dataset.level = level;
    return one;
  }));
  check(group, (one) => one.dataset.level === String(map().level));
}

function check(group, isChosen) {
  for (const one of group.children) one.setAttribute("aria-checked", String(isChosen(one)));
}

/** Draws the fabric as a graph or as a heat map. */
function draw(as) {
  view = as;
  for (const [name, one] of Object.entries(maps)) one.canvas.hidden = name !== as;
  check(at("views"), (one) => one.dataset.view === as);
  map().show(model.fabric);
}

async function readGraph() {
  const text = await askText("/v1/fabric-graph");
  spend(() => {
    model.fabric = arrange(JSON.parse(text));
    if (model.loads && fits(model.fabric, model.loads)) takeLoads(model.fabric, model.loads);
    draw(model.fabric.isLarge ? "heat" : "graph");
  });
  inFrame("facts", () => { showFacts(); showLevels(); });
  for (const name of Object.keys(PATHS)) fill(name);
}

const texts = new Map();

/** Reads an answer, and takes it in if it has changed. */
async function read(name) {
  const text = await askText(PATHS[name]);
  readAt[name] = Date.now();
  if (texts.get(name) === text) return;
  texts.set(name, text);
  inFrame(`read ${name}`, () => {
    model[name] = JSON.parse(text);
    if (model.fabric) inFrame(`take ${name}`, taken[name]);
  });
}

const readAt = {};

async function readFlows() {
  const id = model.chosen;
  const flows = await ask(`/v1/job-flows/${encodeURIComponent(id)}`);
  if (model.chosen !== id) return;
  model.flows = flows;
  fill("jobs");
}

/** Asks again soon, once for all that asks for it, and never twice at a time. */
const refresh = (() => {
  let [waiting, again] = [false, false];
  const run = async () => {
    again = false;
    const reads = [...Object.keys(PATHS).map(read), ...(model.chosen ? [readFlows()] : []), policy.refresh(at("policy"), model, act)];
    await Promise.all(reads).catch((error) => point(undefined, error.message));
    waiting = false;
    if (again) ready();
  };
  const ready = () => {
    again = true;
    if (waiting) return;
    waiting = true;
    setTimeout(run, GATHER_MS);
  };
  return ready;
})();

/** Reads what is old, while anybody looks. */
function keepFresh() {
  if (document.hidden || at("live").dataset.state !== "live") return;
  const old = Object.keys(AGAIN_MS).filter((name) => Date.now() - (readAt[name] ?? 0) >= AGAIN_MS[name]);
  for (const name of old) {
    readAt[name] = Date.now();
    read(name).catch(() => {});
  }
}

function tab(name) {
  for (const one of document.querySelectorAll("[role=tab]")) {
    const isChosen = one.getAttribute("aria-controls") === name;
    one.setAttribute("aria-selected", String(isChosen));
    one.tabIndex = isChosen ? 0 : -1;
    at(one.getAttribute("aria-controls")).hidden = !isChosen;
    if (isChosen) one.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  fill(name);
  if (name === "policy") policy.begin(at("policy"));
}

function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  for (const [place, one] of all.entries()) {
    const name = one.getAttribute("aria-controls");
    one.addEventListener("click", () => tab(name));
    one.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = all.at((place + step) % all.length);
      next.focus();
      tab(next.getAttribute("aria-controls"));
    });
  }
  tab("findings");
}

function scale() {
  const names = ["idle", "< 0.2", "< 0.4", "< 0.6", "< 0.8", "< 1", "more"];
  at("scale").append(...names.map((name, heat) => element("li", { className: `heat-${heat}` }, name)));
}

function live(state, text) {
  at("live").dataset.state = state;
  at("live").textContent = text;
}

/** A controller that has tokens wants one; the files of the page are open to everybody. */
function lock() {
  const form = at("lock");
  addEventListener("locked", () => { form.hidden = false; at("search").hidden = true; });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await logIn(form.querySelector("input").value);
      location.reload();
    } catch (refused) {
      form.querySelector("output").textContent = refused.message;
    }
  });
}

/** Who is logged in, and what that allows. */
async function greet() {
  const { name, role } = await session();
  model.name = name;
  model.canWrite = role === "write";
  policy.allow(at("policy"), model);
  fill("switches");
  fill("links");
  if (!name) return;
  const out = element("button", { type: "button", onclick: () => logOut().then(() => location.reload()) }, "log out");
  at("who").replaceChildren(`${name} (${role}) `, out);
  at("who").hidden = false;
}

tabs();
scale();
lock();
policy.open(at("policy"), model, act);
search.open(at("search"), model, goTo);
at("in").addEventListener("click", () => map().zoom(0.6));
at("out").addEventListener("click", () => map().zoom(1 / 0.6));
at("fit").addEventListener("click", () => map().all());
for (const one of at("views").children) one.addEventListener("click", () => draw(one.dataset.view));
const begun = [readGraph(), read("loads")];
Promise.all(begun).then(refresh, refresh);
greet().catch(() => {});
setInterval(keepFresh, 1000);
follow({
  open: () => { live("live", "live"); refresh(); },
  closed: () => live("gone", at("lock").hidden ? "the controller is away" : "log in first"),
  missed: (count) => panels.missed(at("events"), count),
  event: (event) => {
    model.events.push(event);
    if (model.events.length > 500) model.events.shift();
    panels.event(at("events"), event);
    refresh();
  },
});

// For tests, and to measure how long a frame takes.
window.crux = {
  maps, model, spent, stateOf,
  get map() { return map(); },
  /** Takes in all answers as if they had changed. */
  again: () => { texts.clear(); return Promise.all(Object.keys(PATHS).map(read)); },
};
