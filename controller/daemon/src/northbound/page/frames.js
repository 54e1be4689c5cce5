// The time that the page takes for itself, one piece of work a frame.
//
// A refresh is cut into pieces that each fit into a frame: one answer is read, one panel is filled.
// So the page stays at the speed of the display while it is live.

/** Milliseconds of the latest pieces of work. */
export const spent = [];

const KEPT = 500;
const waiting = new Map();
let asked;

/** Does a piece of work, and says how long that took. */
export function spend(work) {
  const start = performance.now();
  work();
  const took = performance.now() - start;
  spent.push(took);
  if (spent.length > KEPT) spent.shift();
  return took;
}

/** Does a piece of work in a frame of its own; another of its name that still waits is dropped. */
export function inFrame(name, work) {
  waiting.set(name, work);
  asked ??= requestAnimationFrame(next);
}

function next() {
  const [[name, work]] = waiting;
  waiting.delete(name);
  asked = waiting.size ? requestAnimationFrame(next) : undefined;
  spend(work);
}
