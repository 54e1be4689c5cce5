// The controller, as this page sees it: questions with one answer, and the events that go on.
//
// Events are read with fetch, so that they can be asked for like everything else. A stream that
// ends is begun again where it was; the controller says how much was missed.

const RETRY_MS = 1000;

/** Exchanges a token for a cookie that goes with everything that is asked from now on. */
export async function logIn(token) {
  await ask("/v1/session", { token });
}

/** Gives the cookie back. */
export async function logOut() {
  await request("/v1/session", "application/json", { method: "DELETE" });
}

/** Who is logged in, `{ name, role }`. */
export function session() {
  return ask("/v1/session");
}

/** Asks; that a login is wanted is heard as `locked`. */
async function request(path, accept, init = {}) {
  const answer = await fetch(path, { ...init, headers: { accept, ...init.headers } });
  if (answer.status === 401) dispatchEvent(new Event("locked"));
  return answer;
}

/** An answer of the controller, or an error with the words of the refusal. */
export async function ask(path, document) {
  const text = await askText(path, document);
  return text ? JSON.parse(text) : undefined;
}

/** As `ask`, the answer as it was sent. */
export async function askText(path, document) {
  const init = document === undefined
    ? {}
    : { method: "POST", body: JSON.stringify(document), headers: { "content-type": "application/json" } };
  const answer = await request(path, "application/json", init);
  const text = await answer.text();
  if (answer.ok) return text;
  throw new Error(problem(text) ?? `${path}: ${answer.status}`);
}

function problem(text) {
  try {
    return JSON.parse(text).findings.map((finding) => finding.text).join("\n");
  } catch {
    return undefined;
  }
}

/**
 * Reads events for as long as the page is there. `hear` has one method for each thing that can be
 * heard: `open`, `closed`, `event` and `missed`.
 */
export async function follow(hear) {
  let since = "0";
  for (;;) {
    try {
      const path = `/v1/events?since=${since}`;
      const answer = await request(path, "text/event-stream", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      hear.open();
      for await (const frame of frames(answer.body)) {
        if (frame.id) since = frame.id;
        if (frame.event === "missed") hear.missed(JSON.parse(frame.data).missed);
        else hear.event(JSON.parse(frame.data));
      }
    } catch {
      // Whatever went wrong, the remedy is the same.
    }
    hear.closed();
    await new Promise((wake) => setTimeout(wake, RETRY_MS));
  }
}

/** The events of a stream; comments are skipped. */
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const frame = fields(part);
      if (frame.data) yield frame;
    }
  }
}

function fields(part) {
  const frame = {};
  for (const line of part.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) frame[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return frame;
}
