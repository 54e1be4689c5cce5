// Changes of policy: what one would do, making it, and going back.
//
// Whatever this page applies can be on trial: the controller takes it back by itself unless it is
// confirmed in time. The document is one that can be pasted into a file and given to
// `crux policy apply`. Who may only read sees the same, without what changes something.

import { ask } from "./controller.js";
import { element, level, percent, row, seconds, sureButton, table, time } from "./elements.js";

const MOST = 200;
const REVISIONS = 50;

/** Sets the form going; `act` points at flows on the map. */
export function open(panel, model, act) {
  const [form, text] = [panel.querySelector("form"), panel.querySelector("textarea")];
  const failed = (error) => show(panel, element("p", { className: "error" }, error.message));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    preview(panel, text.value, act).catch(failed);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  panel.querySelector("#present").addEventListener("click", () => present(panel).catch(failed));
  const field = (id) => panel.querySelector(`#${id}`);
  const apply = sureButton("Apply", "Apply: sure?", async () => {
    const within = Number(field("within").value);
    const change = { policy: { file: fileOf(text.value), text: text.value } };
    await send(panel, model, act, "apply", { change, reason: field("reason").value, ...(within ? { confirm_within_seconds: within } : {}) });
  });
  apply.id = "apply";
  apply.classList.remove("small");
  field("apply").replaceWith(apply);
}

/** Shows what a role may do. */
export function allow(panel, { canWrite }) {
  panel.querySelector("#change").hidden = !canWrite;
}

/** Shows the policy in force when the panel is first opened. */
export function begin(panel) {
  if (!panel.querySelector("textarea").value) present(panel).catch(() => {});
}

async function present(panel) {
  const revision = await ask("/v1/policy");
  panel.querySelector("textarea").value = JSON.stringify(revision.content.policy, null, 2);
}

const fileOf = (text) => (text.trimStart().startsWith("{") ? "policy.json" : "policy.toml");

/** Makes a change, and says what became of it. */
async function send(panel, model, act, verb, request) {
  const outcome = panel.querySelector("#outcome");
  outcome.className = "info";
  outcome.textContent = "asking";
  try {
    const done = await ask(`/v1/policy/${verb}`, { author: model.name ? "" : "page", ...request });
    outcome.className = done.applied ? "good" : "error";
    const trial = done.trial_until_ms ? `, on trial until ${time(done.trial_until_ms)}` : "";
    outcome.textContent = [`revision ${done.revision} is in force${trial}`, ...done.findings.map((one) => one.text)].join("\n");
  } catch (error) {
    outcome.className = "error";
    outcome.textContent = error.message;
  }
  await refresh(panel, model, act);
}

/** Shows the trial and the history again. */
export async function refresh(panel, model, act) {
  const revisions = await ask(`/v1/policy/revisions?limit=${REVISIONS}`);
  showTrial(panel, revisions[0]?.revision, model, act);
  if (document.activeElement?.closest("#history")) return;
  const items = revisions.map(({ revision, changes }, at) => {
    const { number, metadata } = revision;
    const when = metadata.at_ms ? new Date(metadata.at_ms).toLocaleString([], { hour12: false }) : "at the start";
    const item = element("li", {},
      element("b", {}, `${number}`),
      element("div", {}, element("span", { className: "faint" }, `${when}, ${metadata.author || "crux"}${metadata.reason ? `: ${metadata.reason}` : ""}`),
        ...changes.map((change) => element("div", {}, change))));
    item.dataset.revision = number;
    const back = () => send(panel, model, act, "rollback", { revision: number, reason: `back to revision ${number}` });
    if (at && model.canWrite) item.append(sureButton("roll back to this", "sure?", back));
    return item;
  });
  panel.querySelector("#history").replaceChildren(element("ol", { className: "revisions" }, ...items));
}

function showTrial(panel, revision, model, act) {
  const place = panel.querySelector("#trial");
  if (place.contains(document.activeElement) && revision?.trial) return;
  if (!revision?.trial) return place.replaceChildren();
  const { until_ms: until, awaits_confirmation: awaits } = revision.trial;
  const end = awaits ? `: it is taken back at ${time(until)} unless it is confirmed` : " until every switch holds it";
  const buttons = model.canWrite && awaits
    ? [["Confirm", "confirm"], ["Roll back", "rollback"]].map(([name, verb]) =>
      element("button", { type: "button", onclick: () => send(panel, model, act, verb, {}) }, name))
    : [];
  place.replaceChildren(element("p", { className: "warning" }, `Revision ${revision.number} is on trial${end}. `, ...buttons));
}

async function preview(panel, text, act) {
  show(panel, element("p", { className: "info" }, "asking"));
  const file = fileOf(text);
  const found = await ask("/v1/policy/preview", { policy: { file, text } });
  show(panel, ...parts(found, file, act));
}

function show(panel, ...parts) {
  panel.querySelector("#preview").replaceChildren(...parts);
}

function parts(found, file, act) {
  const { policy, jobs, flows, switches, gpu_utilization: use, findings } = found;
  if (!policy.length) return [element("p", { className: "info" }, "This is what is in force.")];
  const entries = switches.reduce((sum, one) => sum + one.entries.length, 0);
  return [
    heading("What it says differently"),
    ...policy.map((text) => element("p", {}, text)),
    heading("What would come of it"),
    element("p", {}, `GPU utilisation ${percent(use.before)} → ${percent(use.after)} by the fluid model`),
    ...findings.map((one) => element("p", { className: one.severity }, `${one.about}: ${one.text}`)),
    heading(`Jobs that change: ${jobs.length}`),
    ...(jobs.length ? [table(["job", "level", "iteration"], jobs.slice(0, MOST).map(jobRow))] : []),
    heading(`Flows that move: ${flows.length}`),
    ...(flows.length ? [table(["flow", "way"], flows.slice(0, MOST).map((flow) => flowRow(flow, act)))] : []),
    heading(`Entries that would be written: ${entries}, on ${switches.length} switches`),
    ...switches.map((one) => element("details", {},
      element("summary", {}, `${one.name}: ${one.entries.length}`),
      element("pre", {}, one.entries.join("\n")))),
    heading("To put it in force"),
    element("p", {}, element("code", {}, `crux policy apply ${file} --confirm-within 60s`)),
  ];
}

const heading = (text) => element("h2", {}, text);

function jobRow({ id, level: had, iteration_seconds: took }) {
  const arrow = (a, b) => element("span", {}, a, " → ", b);
  const of = (number) => (number === null ? "-" : level(number));
  return row([id, arrow(of(had.before), of(had.after)), arrow(seconds(took.before), seconds(took.after))]);
}

function flowRow(flow, act) {
  const name = `${flow.job} ${flow.src}>${flow.dst}${flow.udp_src_port ? `:${flow.udp_src_port}` : ""}`;
  const inner = (path) => path.slice(1, -1).join(" > ") || "none";
  const way = `${inner(flow.path.before)} → ${inner(flow.path.after)}`;
  return row([name, way], { point: () => act.pointMove(flow), leave: act.leave });
}
