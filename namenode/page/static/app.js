import { ask, count, duration, el, num, show } from "./dom.js";
import { call, get, me } from "./api.js";
import { holders, granted, lease } from "./holders.js";
import { history } from "./history.js";
import { tree } from "./tree.js";
import { fleet } from "./fleet.js";
import { figures } from "./figures.js";
import { changes } from "./changes.js";

const views = { holders, granted, lease, tree, fleet, figures, changes, history };
const anywhere = new Set(["fleet", "figures"]); // also of a standby
const $ = (id) => document.getElementById(id);
let current = null; // {abort, often, again}: what of the view is done again and again, and what failed and is tried again
let standby = "";   // why the namenode answers no calls; empty: it does
let known = false;  // it was found out who is signed in

// Time between two looks at what is shown.
const every = 5000;

// wrong is what does not work: of the view, and of what is above it.
const wrong = { view: null, state: null };

function tell(of, e) {
  if (e?.name === "AbortError") return;
  wrong[of] = e;
  const text = (wrong.view || wrong.state)?.message || "";
  $("trouble").hidden = !text;
  if ($("trouble").textContent !== text) $("trouble").textContent = text; // which is read aloud
  if (e?.status === 401) sign(e.message);
}

export const trouble = (e) => tell("view", e);
export const fine = () => tell("view", null);

// passes tells whether what went wrong may be right in a moment.
const passes = (e) => !e.status || e.status === 429 || e.status >= 500;

// attempt does something for the view that is shown, and again until the namenode answers.
export async function attempt(fn, mine = current) {
  let e = null;
  try { await fn(); } catch (err) { e = err; }
  if (current !== mine || e?.name === "AbortError") return;
  tell("view", e);
  mine.again = e && passes(e) ? fn : null;
}

export function said(text) {
  $("said").hidden = false;
  $("said").textContent = text;
}

// where is the view that the address names, its path and its parameters.
function where() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  let at = "/";
  try { at = `/${rest.map(decodeURIComponent).join("/")}`; } catch { /* an address that was typed */ }
  return { view: Object.hasOwn(views, view) ? view : "holders", path: at, params: new URLSearchParams(query) };
}

export function go(view, path, params = {}) {
  const q = new URLSearchParams(Object.entries(params).filter(([, v]) => v));
  return `#/${view}${path ? path.split("/").map(encodeURIComponent).join("/") : ""}${q.size ? `?${q}` : ""}`;
}

// A view shows at once what needs no answer, and returns what it asks for: once, or also often.
async function route() {
  current?.abort.abort();
  const { view, path, params } = where();
  for (const a of document.querySelectorAll("nav a")) {
    const here = a.getAttribute("href").startsWith(`#/${view}`);
    if (here) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  }
  const abort = new AbortController();
  const mine = current = { abort, often: null, again: null };
  fine();
  $("said").hidden = true;
  const main = $("view");
  const was = main.dataset.of === location.hash ? null : main.firstChild; // what is of another address
  main.dataset.of = location.hash;
  main.dataset.view = view;
  main.dataset.ready = "";
  if (standby && !anywhere.has(view)) {
    show(main, el("h1", {}, "Not here"), el("p", {}, standby, " Its page has this view; ", el("a", { href: "#/fleet" }, "the fleet"), " says where it is."));
    return;
  }
  const { once, often } = views[view]({ main, path, params, signal: abort.signal });
  await attempt(once || often, mine);
  if (current !== mine) return;
  mine.often = often;
  if (was && main.firstChild === was) show(main, el("p", { class: "dim" }, "There is nothing to show."));
  main.dataset.ready = "yes";
}

// look is what happens again and again, while the page is seen.
async function look() {
  if (!document.hidden) {
    await status();
    const mine = current;
    const fn = mine.again || mine.often;
    if (fn && !document.querySelector("dialog")) await attempt(fn, mine);
  }
  setTimeout(look, every);
}

// status shows how the namenode is, above all views.
async function status() {
  let s;
  try { s = await call("Status"); } catch (e) { tell("state", e); return; }
  tell("state", null);
  const bad = (on, text) => on && el("span", { class: "bad" }, ` · ${text}`);
  const parts = [
    `${s.address} is ${s.role}`, s.term && ` · term ${s.term}`, s.uptime_ms && ` · up ${duration(s.uptime_ms)}`, ` · ${s.version || ""}`,
    bad(s.safe_mode, "safe mode: changes are refused"), bad(s.short, `no room: ${s.short}`), bad(s.store_conflict, `store conflict: ${s.store_conflict}`),
    bad(s.disk_error, `disk error: ${s.disk_error}`), bad(s.trusts === "everybody", "trusts clients: whoever reaches it can act as any user"),
    bad(num(s.scrub?.damaged), `${count(s.scrub?.damaged)} damaged blocks: leasefs admin fsck names their files`),
    bad(s.audit && (s.audit.lost || s.audit.problem), "the audit log has lost lines"),
  ];
  const was = standby;
  standby = "";
  if (s.role !== "active") {
    standby = s.active_address ? `This namenode is ${s.role === "standby" ? "a standby" : s.role}; the active one is ${s.active_address}.` : `This namenode is ${s.role}, and knows no active one.`;
    parts.push(el("span", { class: "bad" }, ` · ${standby} `), await linkToActive());
  }
  show($("state"), parts);
  if (!standby && (was || !known)) await whoami();
  if (was !== standby) route();
}

// pageOf is the address of a namenode's page, if it is one.
export const pageOf = (m) => {
  const url = /^https?:\/\//.test(m.page) ? m.page : m.page && `${location.protocol}//${m.page}`;
  return url && URL.canParse(url) ? `${url}/page/` : null;
};

async function linkToActive() {
  try {
    const active = (await get("fleet")).members.find((m) => m.active);
    const url = active && pageOf(active);
    return url && el("a", { href: url, id: "active" }, `open the page of ${active.address}`);
  } catch { return null; }
}

// whoami finds out who is signed in; it asks for it if nobody is.
async function whoami() {
  const said = me.user;
  me.user = "";
  let w;
  try { w = await call("WhoAmI"); } catch (e) {
    me.user = said;
    known = !passes(e);
    if (e.status !== 503) tell("state", e);
    return;
  }
  known = true;
  me.user = w.user || said;
  if (!me.user) return sign("This namenode believes its callers who they are. Say as whom you look at it.");
  if (!w.user) { try { w = await call("WhoAmI"); } catch (e) { return tell("state", e); } }
  $("who").textContent = `${me.user}${w.superuser ? " (superuser)" : ""}`;
  $("sign").textContent = "Change";
}

function sign(why) {
  if (document.querySelector("dialog")) return;
  const user = el("input", { name: "user", value: me.user, autocomplete: "username", spellcheck: "false" });
  const token = el("input", { name: "token", type: "password", autocomplete: "off", placeholder: "only if the namenode takes tokens" });
  const done = (e) => { e.preventDefault(); me.remember(user.value.trim(), token.value.trim()); d.close(); start(); };
  const d = ask("Who are you?",
    el("p", {}, why),
    el("form", { onsubmit: done }, el("label", {}, "User", user), el("label", {}, "Token", token),
      el("button", { type: "submit" }, "Sign in")),
    el("p", { class: "dim" }, "A client certificate of the browser proves it by itself. A token is a line of a token file, of an issuer, or from leasefs token get; it is kept in this tab until you close it."));
}

function help() {
  const keys = [["1 … 7", "the views"], ["/", "the filter"], ["j k ↓ ↑", "next and previous row"], ["Enter", "open, or press"], ["n p", "next and previous page"], ["?", "this list"], ["Esc", "close"]];
  const d = ask("Keys", el("dl", {}, keys.map(([k, what]) => [el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)])),
    el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => d.close() }, "Close")));
}

// row moves the focus to the next row's first link or button.
function row(by) {
  const rows = [...$("view").querySelectorAll("tbody tr")].filter((r) => r.querySelector("a, button"));
  const at = rows.indexOf(document.activeElement?.closest("tr"));
  const next = rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)];
  next?.querySelector("a, button").focus();
}

function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog") || e.target.closest("input, select, textarea")) return;
  const press = (sel) => $("view").querySelector(sel)?.click();
  const keys = {
    "/": () => $("view").querySelector("input")?.focus(), "?": help, j: () => row(1), k: () => row(-1), ArrowDown: () => row(1), ArrowUp: () => row(-1),
    n: () => press("[data-page=next]:not(:disabled)"), p: () => press("[data-page=back]:not(:disabled)"),
  };
  const to = document.querySelector(`nav a[data-key="${CSS.escape(e.key)}"]`);
  if (to) location.hash = to.getAttribute("href");
  else if (Object.hasOwn(keys, e.key)) keys[e.key]();
  else return;
  e.preventDefault();
}

async function start() {
  known = false;
  await status();
  if (!standby && !known) await whoami();
  await route();
}

addEventListener("hashchange", route);
addEventListener("keydown", key);
document.addEventListener("visibilitychange", () => { if (document.hidden) current?.abort.abort(); else route(); });
$("sign").addEventListener("click", () => sign("Sign in as somebody else, or with another token."));
$("keys").addEventListener("click", help);
await start();
setTimeout(look, every);
