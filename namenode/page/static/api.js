// How the page asks the namenode. Who asks is in each request; a token is kept for this tab only.

// tab tells this tab from others. The namenode makes the id of a session of it and of who asks:
// browsers do not compute hashes for a page without TLS.
const tab = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(10))));
let seq = 0;

export const me = {
  user: localStorage.getItem("leasefs-user") || "",
  token: sessionStorage.getItem("leasefs-token") || "",
  remember(user, token) {
    this.user = user;
    this.token = token;
    localStorage.setItem("leasefs-user", user);
    if (token) sessionStorage.setItem("leasefs-token", token); else sessionStorage.removeItem("leasefs-token");
  },
};

export class Problem extends Error {
  constructor(status, detail) {
    super(detail.message || `the namenode answered with status ${status}`);
    this.status = status;
    this.detail = detail;
  }
}

async function post(path, request, signal) {
  const headers = { "Content-Type": "application/json" };
  if (me.token) headers.Authorization = `Bearer ${me.token}`;
  let r;
  try {
    r = await fetch(`api/${path}`, { method: "POST", headers, body: JSON.stringify({ user: me.user, tab, request }), signal, cache: "no-store" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Problem(0, { message: "the namenode does not answer; this is tried again" });
  }
  if (r.ok) return r;
  let detail = {};
  try { detail = (await r.json()).error || {}; } catch { /* no error of the page's */ }
  throw new Problem(r.status, detail);
}

export const call = (method, request = {}, signal = undefined) => get(`call/${method}`, request, signal);

export async function get(what, request = {}, signal = undefined) {
  const answer = await (await post(what, request, signal)).json();
  signal?.throwIfAborted(); // it may have come before that
  return answer;
}

// latest makes of ask(signal, …) what gives the one before up: what was asked for last is shown
// last, however long each answer takes.
export function latest(signal, ask) {
  let last = null;
  return (...args) => {
    last?.abort();
    last = new AbortController();
    return ask(AbortSignal.any([last.signal, signal]), ...args);
  };
}

// nextCall numbers a call that changes something, so that it happens once.
export const nextCall = () => ({ seq: String(++seq) });

// stream calls fn with each message of a call that lasts, until signal says so or it ends.
export async function stream(method, request, signal, fn) {
  const r = await post(`call/${method}`, request, signal);
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const m = JSON.parse(line);
      if (m.error) throw new Problem(500, m.error);
      fn(m);
    }
  }
}
