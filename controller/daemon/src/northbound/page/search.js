// Search over everything that has a name: jobs, switches, hosts and cables.

import { element } from "./elements.js";

const MOST = 12;

/** What has a name like this, the likeliest first: `{ kind, name, note }`. */
export function find(model, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted || !model.fabric) return [];
  const found = [];
  const add = (kind, name, note, more = "") => {
    const at = name.toLowerCase().indexOf(wanted);
    const rank = at === 0 ? (name.length === wanted.length ? 0 : 1) : at > 0 ? 2 : more.toLowerCase().includes(wanted) ? 3 : -1;
    if (rank >= 0) found.push({ kind, name, note, rank });
  };
  for (const job of model.jobs) {
    const of = [job.tenant, job.model].filter(Boolean).join(", ");
    add("job", job.id, `${job.gpus} GPUs${of ? `, ${of}` : ""}`, of);
  }
  for (const { name, tier, state } of model.fabric.switches) add("switch", name, `${tier}, ${state}`);
  for (const { name, gpus } of model.fabric.hosts) add("host", name, `${gpus} GPUs`);
  if (wanted.includes("-") || wanted.includes(":")) {
    for (const { at, a, b, state } of model.fabric.cables) add("cable", `${a.name}-${b.name}`, state, String(at));
  }
  found.sort((a, b) => a.rank - b.rank || a.name.length - b.name.length);
  return found.slice(0, MOST);
}

/** Sets the field going; `go` is told what was chosen. */
export function open(form, model, go) {
  const [input, list] = [form.querySelector("input"), form.querySelector("ul")];
  let [found, at] = [[], 0];
  const show = () => {
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    list.replaceChildren(...found.map((one, place) => {
      const item = element("li", { role: "option", id: `found-${place}` },
        element("b", {}, one.name), element("span", {}, `${one.kind}, ${one.note}`));
      item.setAttribute("aria-selected", String(place === at));
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(one); });
      return item;
    }));
    if (found.length) input.setAttribute("aria-activedescendant", `found-${at}`);
  };
  const close = () => { found = []; show(); };
  const take = (one) => {
    if (!one) return;
    input.value = "";
    close();
    go(one);
  };
  input.addEventListener("input", () => { [found, at] = [find(model, input.value), 0]; show(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      at = (at + step + found.length) % found.length;
      show();
    } else if (event.key === "Escape") {
      input.value = "";
      close();
    }
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); take(found[at]); });
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    input.focus();
  });
}
