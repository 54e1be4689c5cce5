// What a change of policy would do, before anybody makes it.
//
// The page only asks: nothing here changes anything. The document is one that can be pasted into a
// file and given to `crux policy apply`.

import { ask } from "./controller.js";
import { element, level, row, seconds, table } from "./elements.js";

const MOST = 200;

/** Sets the form going; `act` points at flows on the map. */
export function open(panel, act) {
  const [form, text] = [panel.querySelector("form"), panel.querySelector("textarea")];
  const present = async () => {
    const revision = await ask("/v1/policy");
    text.value = JSON.stringify(revision.content.policy, null, 2);
  };
  const failed = (error) => show(panel, element("p", { className: "error" }, error.message));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    preview(panel, text.value, act).catch(failed);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  panel.querySelector("#present").addEventListener("click", () => present().catch(failed));
  return () => (text.value ? undefined : present().catch(failed));
}

async function preview(panel, text, act) {
  show(panel, element("p", { className: "info" }, "asking"));
  const file = text.trimStart().startsWith("{") ? "policy.json" : "policy.toml";
  const found = await ask("/v1/policy/preview", { policy: { file, text } });
  show(panel, ...parts(found, file, act));
}

function show(panel, ...parts) {
  panel.querySelector("#preview").replaceChildren(...parts);
}

function parts(found, file, act) {
  const { policy, jobs, flows, switches, gpu_utilization: use, findings } = found;
  if (!policy.length) return [element("p", { className: "info" }, "This is what is in force.")];
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
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
