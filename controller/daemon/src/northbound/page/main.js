// The page: one model of what the controller answers, the map and the panels that show it.
//
// Events say when to ask again; what is shown is always a whole answer, never put together from
// events, so a page that missed some is right again with the next.

import { ask, follow, logIn } from "./controller.js";
import { element } from "./elements.js";
import { arrange, between, load, loadOf } from "./fabric.js";
import { FabricMap } from "./map.js";
import * as panels from "./panels.js";
import * as policy from "./policy.js";

/** Whatever comes within this time is one reason to ask. */
const GATHER_MS = 200;

const at = (id) => document.getElementById(id);

const model = { fabric: undefined, links: [], jobs: [], switches: [], chosen: undefined, flows: undefined };

const map = new FabricMap(at("canvas"), { over: pointAt });

const act = {
  leave: () => point(undefined, ""),
  pointJob: (id) => pointLegs(legsOf(model.links.filter((link) => link.jobs.includes(id))), `job ${id}`, false),
  pointFlow: (flow) => pointLegs(flow.links.map((name) => model.fabric.byName.get(name)).filter(Boolean),
    `${flow.src}>${flow.dst}${flow.udp_src_port ? `:${flow.udp_src_port}` : ""} of ${flow.job}, ${flow.pinned ? "pinned" : "left to ECMP"}\n${flow.path.join(" > ")}`, true),
  pointMove: ({ job, src, dst, path }) => {
    const [was, legs] = [path.before, path.after].map((names) => between(model.fabric, names));
    point({ legs, was, isPath: true }, `${src}>${dst} of ${job}\nnow ${path.before.join(" > ")}\nthen ${path.after.join(" > ")}`);
  },
  pointLink: (link) => pointLegs([model.fabric.byName.get(link.link)], panels.tell(link), true),
  pointNode: (node) => point({ nodes: [node] }, describe(node)),
  choose: async (id) => {
    model.chosen = model.chosen === id ? undefined : id;
    model.flows = undefined;
    showJobs();
    if (model.chosen) await readFlows();
  },
};

function pointLegs(legs, text, isPath) {
  point({ legs, isPath }, text);
}

function point(shown, text) {
  map.point(shown);
  at("about").textContent = text || "\u00a0";
}

/** What the pointer is over on the map. */
function pointAt(found) {
  if (!found) point(undefined, "");
  else if (found.node) act.pointNode(found.node);
  else pointLegs([{ cable: found.cable }], [found.cable.forth, found.cable.back].map(panels.tell).join("\n"), true);
}

function describe(node) {
  const line = model.switches.find((one) => one.name === node.name);
  const parts = [`${node.name}: ${node.tier}, ${node.state}`];
  if (node.gpus) parts.push(`${node.gpus} GPUs`);
  if (line) parts.push(`${line.mastership}, holds generation ${line.verified_generation ?? "none"}, ${line.verified_entries ?? 0} entries`);
  return [parts.join(", "), ...(line?.problems ?? [])].join("\n");
}

const legsOf = (links) => links.map((link) => model.fabric.byName.get(link.link)).filter(Boolean);

function showJobs() {
  panels.jobs(at("jobs"), model, act);
}

function showLinks() {
  panels.links(at("links"), model.links, (link) => loadOf(link, map.level), act);
}

function show() {
  const { fabric, jobs, switches } = model;
  load(fabric, model.links);
  const generation = Math.max(0, ...switches.map((one) => one.verified_generation ?? 0));
  const nodes = [...fabric.nodes.values()].filter((node) => node.tier !== "host");
  for (const node of nodes) node.state = switches.find((one) => one.name === node.name)?.state ?? "up";
  const verified = switches.filter((one) => one.verified_generation === generation).length;
  at("facts").textContent = `${fabric.name}: ${nodes.length} switches, ${fabric.nodes.size - nodes.length} hosts, `
    + `${jobs.length} ${jobs.length === 1 ? "job" : "jobs"}; ${generation ? `${verified} of ${switches.length} hold generation ${generation}` : "no switch holds a plan yet"}`;
  map.show(fabric);
  showLevels();
  showJobs();
  showLinks();
  panels.switches(at("switches"), { nodes, rows: switches, generation }, act);
}

/** The classes that carry something, to look at one of them. */
function showLevels() {
  const used = new Set(model.links.flatMap((link) => link.levels.map((one) => one.level)));
  const levels = ["all", ...[...used].sort((a, b) => b - a)];
  const group = at("levels");
  if (group.dataset.levels === levels.join()) return;
  group.dataset.levels = levels.join();
  if (!levels.includes(map.level)) map.of("all");
  const choose = (level) => {
    map.of(level);
    for (const one of group.children) one.setAttribute("aria-checked", String(one.dataset.level === String(level)));
    showLinks();
  };
  group.replaceChildren(...levels.map((level) => {
    const name = level === "all" ? "all levels" : `level ${level}`;
    const one = element("button", { type: "button", role: "radio", onclick: () => choose(level) }, name);
    one.dataset.level = level;
    one.setAttribute("aria-checked", String(level === map.level));
    return one;
  }));
}

async function read() {
  const [links, jobs, switches] = await Promise.all(["/v1/links", "/v1/jobs", "/v1/switches"].map((path) => ask(path)));
  if (!model.fabric || model.fabric.cables.length * 2 !== links.length) model.fabric = arrange(await ask("/v1/fabric"));
  Object.assign(model, { links, jobs, switches });
  show();
  if (model.chosen) await readFlows();
}

async function readFlows() {
  const id = model.chosen;
  const plan = await ask("/v1/plan");
  if (model.chosen !== id) return;
  model.flows = plan.flows.filter((flow) => flow.job === id);
  showJobs();
}

/** Asks again soon, once for all that asks for it, and never twice at a time. */
const refresh = (() => {
  let [waiting, again] = [false, false];
  const run = async () => {
    again = false;
    await read().catch((error) => point(undefined, error.message));
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

function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  const begin = policy.open(at("policy"), act);
  const choose = (tab) => {
    for (const one of all) {
      const isChosen = one === tab;
      one.setAttribute("aria-selected", String(isChosen));
      one.tabIndex = isChosen ? 0 : -1;
      at(one.getAttribute("aria-controls")).hidden = !isChosen;
    }
    if (tab.id === "tab-policy") begin();
  };
  for (const [place, tab] of all.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = all.at((place + step) % all.length);
      next.focus();
      choose(next);
    });
  }
  choose(all[0]);
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
  addEventListener("locked", () => { form.hidden = false; });
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

tabs();
scale();
lock();
at("in").addEventListener("click", () => map.zoom(0.6));
at("out").addEventListener("click", () => map.zoom(1 / 0.6));
at("fit").addEventListener("click", () => map.all());
refresh();
follow({
  open: () => { live("live", "live"); refresh(); },
  closed: () => live("gone", "the controller is away"),
  missed: (count) => panels.missed(at("events"), count),
  event: (happening) => { panels.event(at("events"), happening); refresh(); },
});

// For tests, and for whoever wants to know how long a frame takes.
window.crux = { map, model };
