import { el, ended, later, num, plural, show, table, time } from "./dom.js";
import { stream } from "./api.js";
import { fine, go, said, trouble } from "./app.js";

const kept = 500; // events that are shown

const kinds = {
  EVENT_TYPE_CREATE: "created", EVENT_TYPE_CLOSE: "closed", EVENT_TYPE_DELETE: "deleted", EVENT_TYPE_RENAME: "renamed",
  EVENT_TYPE_LENGTH: "grew", EVENT_TYPE_ATTR: "attributes", EVENT_TYPE_LEASE: "lease",
};

// changes is what happens to a path and below, as it happens.
export function changes({ main, params, signal }) {
  let events = [];
  let upTo = 0;
  let stop = null;
  let paused = false;
  const path = el("input", { name: "path", type: "search", value: params.get("path") || "/", spellcheck: "false" });
  const text = el("input", { name: "text", type: "search", placeholder: "a part of path, holder or reason", spellcheck: "false" });
  const kind = el("select", { name: "kind" }, el("option", { value: "" }, "all"), Object.entries(kinds).map(([k, what]) => el("option", { value: k }, what)));
  const state = el("span", { class: "dim", role: "status" });
  const button = el("button", { type: "button", onclick: () => { paused = !paused; button.textContent = paused ? "Continue" : "Pause"; draw(); } }, "Pause");
  const body = el("tbody");
  const columns = [
    ["Change", (e) => e.txid, "num"], ["Time", (e) => time(e.time_unix_ms)], ["What", (e) => kinds[e.type] || e.type],
    ["Path", (e) => el("span", {}, el("a", { href: go("tree", e.new_path || e.path), "data-focus": `${e.txid}${e.path}` }, e.path), e.new_path ? ` to ${e.new_path}` : "")],
    ["Length", (e) => (e.length ? e.length : ""), "num"], ["Holder", (e) => e.holder || ""],
    ["Why", (e) => `${ended(e.reason, e.by)}${e.trashed ? ", kept in the trash" : ""}`],
  ];
  const draw = () => {
    if (paused) return;
    const t = text.value.trim();
    const shown = events.filter((e) => (!kind.value || e.type === kind.value) && (!t || `${e.path}\n${e.new_path || ""}\n${e.holder || ""}\n${ended(e.reason, e.by)}`.includes(t)));
    table("Changes", columns, shown.slice(0, 100), body);
    state.textContent = `up to change ${upTo}; ${plural(shown.length, "event", "events")}${shown.length > 100 ? ", of which the last 100 are shown" : ""}`;
  };
  let due = false;
  const soon = () => { if (!due) { due = true; setTimeout(() => { due = false; draw(); }, 300); } };
  const take = (m) => {
    fine();
    upTo = Math.max(upTo, num(m.txid));
    if (m.events?.length) events = m.events.reverse().concat(events).slice(0, kept);
    soon();
  };
  const run = async () => {
    stop?.abort();
    const mine = stop = new AbortController();
    const both = AbortSignal.any([mine.signal, signal]);
    for (let wait = 500; !both.aborted; wait = Math.min(2 * wait, 8000)) {
      try {
        await stream("Watch", { path: path.value.trim() || "/", recursive: true, from_txid: upTo ? String(upTo + 1) : "0" }, both, (m) => { wait = 500; take(m); });
      } catch (e) {
        if (e.name === "AbortError" || both.aborted) return;
        if (e.status === 410 || /not kept any more/.test(e.message)) { upTo = 0; said(e.message); } else trouble(e); // a gap stays one
        if (e.status >= 400 && e.status < 429 && e.status !== 410) return;
      }
      await new Promise((f) => { setTimeout(f, wait); });
    }
  };
  path.addEventListener("input", later(() => { if (signal.aborted) return; events = []; upTo = 0; history.replaceState(null, "", go("changes", "", { path: path.value.trim() })); draw(); run(); }));
  text.addEventListener("input", draw);
  kind.addEventListener("input", draw);
  show(main, el("h1", {}, "Changes"),
    el("form", { onsubmit: (e) => e.preventDefault(), role: "search" }, el("label", {}, "At and below", path), el("label", {}, "Filter", text), el("label", {}, "What", kind), button, state),
    table("Changes", columns, [], body));
  return { once: async () => { run(); } }; // which lasts
}
