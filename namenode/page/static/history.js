import { duration, el, ended, num, show, table, time } from "./dom.js";
import { call } from "./api.js";
import { attempt, go } from "./app.js";
import { pager } from "./pager.js";

const pageSize = 50;
const kinds = { path: "File", holder: "Holder", lease: "Granted lease" };

// past is the address of the history of a path, holder or granted lease.
export const past = (of, what) => go("history", "", { [of]: what });

function held(s, of) {
  if (s.lease) return el("span", {}, el("a", { href: past("lease", s.lease) }, s.name || s.lease), el("span", { class: "dim" }, " granted lease"));
  if (!s.path) return el("span", { class: "dim" }, `inode ${s.inode}`);
  return el("a", { href: of === "path" ? go("tree", s.path) : past("path", s.path) }, s.path);
}

const columns = (of) => [
  ["From", (s) => time(s.from_unix_ms)], ["To", (s) => (num(s.txid) ? time(s.to_unix_ms) : "now")],
  ["For", (s) => (num(s.txid) ? duration(num(s.to_unix_ms) - num(s.from_unix_ms)) : ""), "num"],
  ["Holder", (s) => s.holder && el("span", {}, s.holder.client ? el("a", { href: past("holder", s.holder.client) }, s.holder.client) : "?", el("span", { class: "dim" }, ` user ${s.holder.user || "?"}`))],
  ["Host", (s) => s.holder && el("span", {}, s.holder.host || "?", num(s.holder.pid) ? el("span", { class: "dim" }, ` pid ${s.holder.pid}`) : null)],
  ["Held", (s) => s.holder && held(s, of)],
  ["Ended", (s) => (!s.holder ? el("span", { class: "bad" }, "not known: the namenode was away") : num(s.txid) ? ended(s.reason, s.by) : "held now")],
];

// history is who held a file or a granted lease, or what a client held, the last end first.
export function history({ main, params, signal }) {
  const of = Object.keys(kinds).find((k) => params.get(k)) || "path";
  const asked = params.get(of) || "";
  const body = el("tbody");
  const note = el("p", { class: "dim", id: "kept" });
  const gap = el("p", { class: "bad", role: "alert", hidden: true });
  const what = el("input", { name: "what", type: "search", value: asked, placeholder: "/the/file, or a name", spellcheck: "false" });
  const kind = el("select", { name: "of" }, Object.entries(kinds).map(([k, text]) => el("option", { value: k, selected: k === of }, text)));
  const pages = pager(signal, ["entry", "entries"], async (cursor, both) => {
    pages.text.textContent = "looking…";
    let r = { next_cursor: cursor };
    try {
      // Each call looks at a part of what is kept, in which there may be nothing.
      do r = await call("LeaseHistory", { [of]: asked, limit: pageSize, cursor: r.next_cursor }, both); while (!r.spans?.length && r.next_cursor);
    } catch (e) {
      if (!both.aborted) pages.text.textContent = "";
      throw e;
    }
    table("History", columns(of), r.spans || [], body);
    note.textContent = `What ended before ${time(r.kept_from_unix_ms)} is not kept.`;
    gap.hidden = !r.problem;
    gap.textContent = `The namenode cannot write the history, so the latest may be missing: ${r.problem}`;
    return [r.next_cursor, r.spans?.length];
  });
  const look = (e) => {
    e.preventDefault();
    const to = past(kind.value, what.value.trim());
    if (to === location.hash) attempt(pages.first); else location.hash = to;
  };
  show(main, el("h1", {}, "History"), el("p", { class: "dim" }, "Who held a file or a granted lease, or what a client held: from when to when, why that ended, and by whom. The latest end comes first."),
    el("form", { onsubmit: look, role: "search" }, el("label", {}, "Of", what), el("label", {}, "Kind", kind), el("button", { type: "submit" }, "Look")),
    gap, table("History", columns(of), [], body), pages.buttons, note);
  return { once: async () => { if (asked) await pages.first(); } };
}
