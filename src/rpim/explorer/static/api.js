// Requests to the server: every change has a unique key, so that a retry is never executed twice.

const TIMEOUT = 8000;
const WAITS = [500, 1500, 3000];

export const connection = { lost: false, ended: false, listeners: new Set() };

function connected(is, ended = false) {
  if (connection.lost === !is && connection.ended === ended) return;
  connection.lost = !is;
  connection.ended = ended;
  for (const listener of connection.listeners) listener();
}

/** A refusal by the server, with its message. */
export class Refused extends Error {}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(options.timeout ?? TIMEOUT) });
  } catch {
    throw new Error("The explorer does not answer.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) connected(false, true);
  const { problem } = await answer.json().catch(() => ({}));
  throw new Refused(problem ?? `The explorer answered ${answer.status}.`);
}

/** Retry a few times if the server does not answer. */
async function insist(path, options) {
  for (const wait of [...WAITS, null]) {
    try {
      const answer = await ask(path, options);
      return answer;
    } catch (error) {
      if (error instanceof Refused || wait === null) throw error;
      connected(false);
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}

export const json = async (path, options) => (await insist(path, options)).json();
export const numbers = async (path, Kind) => new Kind(await (await insist(path, { timeout: 30000 })).arrayBuffer());

/** A question with a long answer: nothing is changed. The first one may load an encoder, which takes seconds. */
export async function answerTo(path, facts) {
  const headers = { "content-type": "application/json" };
  return (await insist(path, { method: "POST", headers, body: JSON.stringify(facts), timeout: 180000 })).arrayBuffer();
}

/** Request a change; it is on disk once this returns. Fails immediately while the connection is lost. */
export async function change(path, facts = {}) {
  if (connection.lost) throw new Error("Not saved: the connection is lost. Try again once it is back.");
  const body = JSON.stringify({ key: crypto.randomUUID(), ...facts });
  const options = { method: "POST", headers: { "content-type": "application/json" }, body, timeout: 30000 };
  try {
    return await (await insist(path, options)).json();
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Error("Not saved: the explorer does not answer. Check that it is running, and try again.");
  }
}

/** Subscribe to all changes; reconnects automatically. */
export function listen(heard) {
  let source;
  let watchdog;
  const silent = () => {
    connected(false);
    start();
  };
  function wait(milliseconds) {
    clearTimeout(watchdog);
    watchdog = setTimeout(silent, milliseconds);
  }
  function start() {
    source?.close();
    source = new EventSource("/api/events");
    source.onmessage = (event) => {
      connected(true);
      wait(10000);
      heard(JSON.parse(event.data));
    };
    source.onerror = async () => {
      connected(false);
      if (source.readyState !== EventSource.CLOSED) return;
      clearTimeout(watchdog);
      await ask("/api/state").catch(() => null); // distinguishes a new key from a stopped server
      if (!connection.ended) wait(2000);
    };
    wait(10000);
  }
  start();
}
