import { ask, bytes, count, duration, el, later, list, name, num, plural, show, table } from "./dom.js";
import { call, get, latest, nextCall } from "./api.js";
import { attempt, go, said } from "./app.js";
import { past } from "./history.js";
import { pager } from "./pager.js";

const pageSize = 50;
let limits = null; // of leases that have none of their own

async function ofLeases() {
  limits ||= await get("figures", { after: -1 });
  return { soft: num(limits.soft_limit_ms), hard: num(limits.hard_limit_ms) };
}

const state = (l) => (l.ending ? "ending" : l.hard_expired ? "hard" : l.soft_expired ? "soft" : "live");
const stateText = {
  live: "live", soft: "past its soft limit: others can take the files", hard: "past its hard limit: about to be closed", ending: "being closed",
};

function when(l) {
  if (num(l.overdue_ms)) return `past its hard limit for ${duration(l.overdue_ms)}`;
  return l.soft_expired ? "can be taken now" : `can be taken in ${duration(l.remaining_ms)}`;
}

// bar shows how long a lease has been idle, on the way to its limits.
function bar(l, { soft, hard }) {
  const idle = num(l.holder?.idle_ms);
  const own = l.soft_expired ? soft : idle + num(l.remaining_ms);
  const full = Math.max(hard, own, 1);
  // The soft limit is a small part of the hard one: both have half of the bar.
  const x = (t) => (t <= own ? (50 * t) / own : full > own ? 50 + (50 * Math.min(t - own, full - own)) / (full - own) : 100);
  const st = state(l) === "ending" ? "hard" : state(l);
  const text = `idle ${duration(idle)}; soft limit ${duration(own)}, hard limit ${duration(full)}`;
  return el("div", {},
    el("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": text },
      el("title", {}, text), el("rect", { class: st, width: x(idle).toFixed(1), height: 10 }), el("line", { class: "tick", x1: 50, x2: 50, y1: 0, y2: 10 })),
    el("span", { class: `state-${st}` }, `${duration(idle)}, ${when(l)}`));
}

// pastOf links to who held a file before.
const pastOf = (f) => (f.path.startsWith("/") ? el("a", { href: past("path", f.path), "data-focus": `h${f.path}` }, "history") : null);

const fileLink = (f) => (f.path.startsWith("/") ? el("a", { href: go("tree", f.path), "data-focus": `f${f.path}` }, f.path) : f.path);

// recover asks whether to close a file, naming it and its holder, and does.
function recover(l, f, after) {
  const who = name(l.holder);
  const force = el("input", { type: "checkbox", name: "force" });
  const wrong = el("p", { class: "bad", role: "alert" });
  const live = !l.soft_expired;
  const yes = el("button", { type: "submit", class: "danger", disabled: live }, "Recover");
  force.addEventListener("change", () => { yes.disabled = !force.checked; });
  const request = { call: nextCall(), at: { base: f.inode }, epoch: f.epoch };
  const act = async (e) => {
    e.preventDefault();
    yes.disabled = true;
    try {
      const r = await call("Recover", { ...request, force: live && force.checked });
      d.close();
      said(r.was_open ? `${f.path} is closed at ${bytes(r.length)} (epoch ${r.epoch}); ${l.holder.client} cannot write to it any more.` : `${f.path} was not open under epoch ${f.epoch} any more; nothing was done.`);
      attempt(after);
    } catch (err) { wrong.textContent = err.message; yes.disabled = false; }
  };
  const d = ask("Recover this file?",
    list([["File", f.path], ["Holder", who], ["Idle", `${duration(l.holder.idle_ms)}, ${when(l)}`]]),
    el("p", {}, "It is closed at its flushed length, of which no byte is lost. What its holder has not flushed is lost, and it can write no more."),
    el("form", { onsubmit: act },
      live && el("label", { class: "check" }, force, `${l.holder.client} is alive: take the file from it all the same`),
      wrong,
      el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, onclick: () => d.close() }, "Cancel"), yes)));
}

const holderCell = (l) => el("span", {}, el("a", { href: go("lease", `/${l.id}`), "data-focus": l.id }, l.holder?.client || "?"), el("span", { class: "dim" }, ` user ${l.holder?.user || "?"}`));

// firstWaiters are the clients of those who wait, as far as they are told.
function firstWaiters(l) {
  const who = [...new Set((l.waiters || []).map((w) => w.who.client || "?"))];
  return `${who.slice(0, 3).join(", ")}${who.length > 3 || num(l.waiting) > (l.waiters || []).length ? ", …" : ""}`;
}

// waiters are those who wait, by name, of each file who came first.
function waiters(l, files) {
  const more = num(l.waiting) - (l.waiters || []).length;
  const file = (w) => files.find((f) => f.inode === w.inode);
  return l.waiters?.length ? [el("h2", {}, "Who waits"), table("Who waits", [
    ["Who", (w) => el("span", {}, w.who.client || "?", el("span", { class: "dim" }, ` user ${w.who.user || "?"}`))],
    ["Host", (w) => el("span", {}, w.who.host || "?", num(w.who.pid) ? el("span", { class: "dim" }, ` pid ${w.who.pid}`) : null)],
    ["File", (w) => (file(w) ? fileLink(file(w)) : `inode ${w.inode}`)], ["Has waited", (w) => duration(w.who.since_ms), "num"],
  ], l.waiters), more > 0 && el("p", { class: "dim" }, `And ${count(more)} more.`)] : null;
}

function sessionColumns(l10s, reload) {
  return [
    ["Holder", holderCell],
    ["Host", (l) => el("span", {}, l.holder?.host || "?", num(l.holder?.pid) ? el("span", { class: "dim" }, ` pid ${l.holder.pid}`) : null)],
    ["File", (l) => {
      const f = l.files?.[0];
      const more = num(l.file_count) - 1;
      return el("span", {}, f ? [fileLink(f), " ", pastOf(f)] : "none listed", more > 0 ? el("span", { class: "dim" }, ` and ${plural(more, "other", "others")}`) : null);
    }],
    ["Idle", (l) => bar(l, l10s)],
    ["Waiting", (l) => (num(l.waiting) ? el("span", {}, plural(l.waiting, "writer", "writers"), el("span", { class: "dim" }, ` ${firstWaiters(l)}`)) : "nobody")],
    ["Connected", (l) => (l.connected ? "yes" : "no")],
    ["Recover", (l) => (num(l.file_count) === 1 && l.files?.length
      ? el("button", { type: "button", "data-focus": `r${l.id}`, onclick: () => recover(l, l.files[0], reload) }, "Recover…")
      : el("a", { href: go("lease", `/${l.id}`) }, "its files"))],
  ];
}

const grantedColumns = () => [
  ["Lease", (l) => el("span", {}, el("a", { href: go("lease", `/${l.id}`), "data-focus": l.id }, l.name || l.id), l.name ? el("span", { class: "dim" }, ` ${l.id}`) : null)],
  ["Granted to", (l) => el("span", {}, l.holder?.client || "?", el("span", { class: "dim" }, ` user ${l.holder?.user || "?"}, host ${l.holder?.host || "?"}`))],
  ["Left", (l) => (num(l.overdue_ms) ? el("span", { class: "state-hard" }, `over for ${duration(l.overdue_ms)}`) : duration(l.remaining_ms)), "num"],
  ["Of", (l) => duration(l.ttl_ms), "num"],
  ["Files", (l) => count(l.attached_count), "num"],
];

// leases is a list of leases of one kind, filtered and sorted by the namenode, a page at a time.
function leases({ main, params, signal }, { view, title, kind, columns, note }) {
  const body = el("tbody");
  const text = el("input", { name: "text", type: "search", value: params.get("text") || "", placeholder: "holder, user or host", spellcheck: "false" });
  const path = el("input", { name: "path", type: "search", value: params.get("path") || "", placeholder: "/the/file", spellcheck: "false" });
  const order = el("select", { name: "order" }, [["IDLE", "longest idle"], ["REMAINING", "least time left"], ["FILES", "most files"], ["ID", "id"]].map(([v, what]) => el("option", { value: v, selected: (params.get("order") || "IDLE") === v }, what)));
  const expired = el("input", { name: "expired", type: "checkbox", checked: params.get("expired") === "1" });
  const pages = pager(signal, ["lease", "leases"], async (cursor, both) => {
    const l10s = await ofLeases();
    const r = await call("ListLeases", {
      kind, text: text.value.trim(), path: path.value.trim(), expired: expired.checked, order: `LEASE_ORDER_${order.value}`, limit: pageSize, max_files: 1, cursor,
    }, both);
    table(title, columns(l10s, pages.again), r.leases || [], body);
    return [r.next_cursor, r.leases?.length];
  });
  const filter = later(() => {
    if (signal.aborted) return; // another view is shown: the address is its
    history.replaceState(null, "", go(view, "", { text: text.value.trim(), path: path.value.trim(), order: order.value === "IDLE" ? "" : order.value, expired: expired.checked && "1" }));
    attempt(async () => {
      try { await pages.first(); } catch (e) { if (e.name !== "AbortError") show(body); throw e; } // what is there is of another filter
    });
  });
  for (const i of [text, path, order, expired]) i.addEventListener("input", filter);
  show(main, el("h1", {}, title), note && el("p", { class: "dim" }, note),
    el("form", { onsubmit: (e) => e.preventDefault(), role: "search" },
      el("label", {}, "Filter", text), el("label", {}, "File", path), el("label", {}, "Sort by", order), el("label", { class: "check" }, expired, "only expired ones")),
    table(title, columns(null, pages.again), [], body), pages.buttons);
  return { often: pages.again };
}

export const holders = (at) => leases(at, {
  view: "holders", title: "Who holds what", kind: "LEASE_KIND_SESSION", columns: sessionColumns,
  note: "A lease is of one client process, over all files that it has open. In the bar the line is its soft limit, the end its hard limit.",
});

export const granted = (at) => leases(at, {
  view: "granted", title: "Granted leases", kind: "LEASE_KIND_GRANTED", columns: grantedColumns,
  note: "Leases that somebody was granted, with a time to live; files attached to one are deleted when it ends.",
});

// lease is one lease with its files.
export function lease({ main, path, signal }) {
  const id = path.slice(1);
  const load = latest(signal, async (both) => {
    const l10s = await ofLeases();
    const l = (await call("ListLeases", { lease: id }, both)).leases?.[0];
    if (!l) {
      show(main, el("h1", {}, `Lease ${id}`), el("p", {}, "It has ended. ", el("a", { href: "#/holders" }, "Who holds what")));
      return;
    }
    const files = l.files || [];
    const shown = l.granted ? (l.attached || []).length : files.length;
    const all = num(l.granted ? l.attached_count : l.file_count);
    show(main, el("h1", {}, `Lease ${l.name || l.id} of ${l.holder.client}`),
      list([["Holder", name(l.holder)], ["Id", l.id], ["State", l.granted ? `${duration(l.remaining_ms)} left of ${duration(l.ttl_ms)}` : stateText[state(l)]],
        ["Idle", !l.granted && bar(l, l10s)], ["Held for", !l.granted && num(l.holder.since_ms) && duration(l.holder.since_ms)], ["Waiting", l.granted ? null : plural(l.waiting, "writer", "writers")],
        ["Connected", l.granted ? null : l.connected ? "yes" : "no"], ["Files", `${count(all)}${shown < all ? `, of which ${count(shown)} are listed` : ""}`],
        ["History", el("a", { href: l.granted ? past("lease", l.id) : past("holder", l.holder.client) }, l.granted ? "who had it" : `what ${l.holder.client || "it"} held`)]]),
      l.granted
        ? table("Attached files", [["Path", (p) => fileLink({ path: p })]], l.attached || [])
        : table("Open files", [["Path", fileLink], ["Inode", (f) => f.inode, "num"], ["Epoch", (f) => f.epoch, "num"], ["History", pastOf],
          ["Recover", (f) => el("button", { type: "button", "data-focus": f.inode, onclick: () => recover(l, f, load) }, "Recover…")]], files),
      waiters(l, files));
  });
  return { often: load };
}
