// Elements of the page, made from values. Text is only ever set as text, so nothing that a job or a
// switch is called can become markup.

/** An element with properties, attributes (`data` as well) and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== undefined));
  return made;
}

/** A table with headings; the first column is the one that gives way. */
export function table(headings, rows) {
  const head = headings.map((text, at) => element("th", { scope: "col", className: at ? "" : "name" }, text));
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows));
}

/** A row of a table; `act` says what pointing at it and choosing it does. */
export function row(cells, act = {}) {
  const made = element("tr", {}, ...cells.map((cell, at) =>
    element("td", { className: at ? "" : "name", title: at ? "" : String(cell) }, cell)));
  if (!act.point) return made;
  made.tabIndex = 0;
  for (const kind of ["pointerenter", "focus"]) made.addEventListener(kind, act.point);
  for (const kind of ["pointerleave", "blur"]) made.addEventListener(kind, act.leave);
  if (act.choose) made.addEventListener("click", act.choose);
  made.addEventListener("keydown", (event) => {
    if (event.target !== made) return;
    const beside = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (beside) {
      event.preventDefault();
      made[beside]?.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      act.choose?.();
    }
  });
  return made;
}

/** A button that asks once more before it does something. */
export function sureButton(text, sure, work) {
  const made = element("button", { type: "button", className: "small" }, text);
  const calm = () => { made.textContent = text; made.classList.remove("sure"); };
  made.addEventListener("blur", calm);
  made.addEventListener("click", async (event) => {
    event.stopPropagation();
    if (made.textContent === text) {
      made.textContent = sure;
      made.classList.add("sure");
      return;
    }
    made.disabled = true;
    try {
      await work();
    } catch (error) {
      made.title = error.message;
      made.textContent = "refused";
    }
    made.disabled = false;
    if (made.textContent === sure) calm();
  });
  return made;
}

/** A short bar that is full at 1. */
export function meter(share, colour) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("width", "100%");
  svg.setAttribute("height", "8");
  const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  bar.setAttribute("width", String(Math.min(1, share) * 100));
  bar.setAttribute("height", "10");
  bar.setAttribute("fill", colour);
  svg.append(bar);
  return element("span", { className: "meter" }, svg);
}

export const level = (number) => element("span", { className: "level", title: "level" }, String(number));

export const time = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

/** A number with a unit of thousands: 1.53 P. */
export function short(number) {
  const units = ["", "k", "M", "G", "T", "P", "E"];
  const at = Math.max(0, Math.min(units.length - 1, Math.floor(Math.log10(number || 1) / 3)));
  return `${(number / 1000 ** at).toPrecision(3)} ${units[at]}`.trim();
}

export const seconds = (number) => (number === null || number === undefined ? "-" : `${number.toFixed(4)} s`);

export const percent = (share) => (share === null || share === undefined ? "-" : `${(100 * share).toFixed(1)} %`);
