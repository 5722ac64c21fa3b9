import { bytes, count, duration, el, list, num, show, table, time } from "./dom.js";
import { call, get } from "./api.js";
import { go, pageOf } from "./app.js";

// counted in bytes are these; the others are numbers of things.
const inBytes = ["memory", "disk", "store", "zookeeper", "tails"];
const amount = (r, n) => (inBytes.includes(r.resource) ? bytes(n) : count(n));

const most = (used, limit, text) => (num(limit) < 0 ? `${text(used)}, no limit` : el("span", { class: num(used) >= num(limit) ? "bad" : "" }, `${text(used)} of ${text(limit)}`));

// quotas shows quotas of directories, and how much of each is used.
export const quotas = (title, of) => table(title, [
  ["Directory", (q) => (q.path ? el("a", { href: go("tree", q.path) }, q.path) : `inode ${q.inode}`)],
  ["Names", (q) => most(q.used_names, q.names, count), "num"], ["Bytes", (q) => most(q.used_bytes, q.bytes, bytes), "num"],
  ["Only in snapshots", (q) => (num(q.snapshot_bytes) ? bytes(q.snapshot_bytes) : ""), "num"],
], of);

// fleet is the namenodes, and how this one is.
export function fleet({ main, signal }) {
  const load = async () => {
    const [s, f] = await Promise.all([call("Status", {}, signal), get("fleet", {}, signal)]);
    const newest = Math.max(num(s.durable_txid), ...f.members.map((m) => m.txid ?? 0));
    const members = f.members.length ? table("Namenodes", [
      ["Namenode", (m) => (pageOf(m) ? el("a", { href: pageOf(m), "data-focus": m.address }, m.address) : m.address)],
      ["Role", (m) => (m.active ? "active" : "standby")],
      ["Behind", (m) => (m.txid === null ? "it does not say" : m.active ? "" : num(newest - m.txid) ? `${count(newest - m.txid)} changes` : "nothing"), "num"],
      ["Fit to be active", (m) => (m.unfit ? el("span", { class: "bad" }, `no: ${m.unfit}`) : "yes")],
      ["Host", (m) => `${m.host} pid ${m.pid}`], ["Version", (m) => m.version || "?"], ["Joined", (m) => time(m.joined_unix_ms)],
    ], f.members) : el("p", {}, "This namenode serves alone.");
    const ready = f.members.filter((m) => !m.active && !m.unfit).length;
    show(main, el("h1", {}, "Fleet"), f.problem && el("p", { class: "bad" }, `ZooKeeper does not say who is there: ${f.problem}`), members,
      f.members.length ? el("p", { class: ready ? "dim" : "bad" }, ready ? `${count(ready)} could take over.` : "No other namenode could take over: if this one fails, the namespace is down.") : null,
      el("h2", {}, "This namenode"),
      list([
        ["Address", s.address], ["Role", s.role], ["Term", s.term], ["Up", duration(s.uptime_ms)], ["Version", s.version], ["Namespace", s.namespace_id],
        ["Feature level", num(s.feature_level) && (num(s.newest_level) > num(s.feature_level) ? `${s.feature_level}; an operator can raise it to ${s.newest_level}` : s.feature_level)],
        ["Last change", `${count(s.txid)}, durable ${count(s.durable_txid)}`], ["Image", num(s.image_txid) ? `of change ${count(s.image_txid)}; ${bytes(s.journal_bytes)} of journal since` : "none yet"],
        ["Holds", `${count(s.files)} files, ${count(s.directories)} folders, ${count(s.blocks)} blocks`], ["Open files", count(s.open_files)],
        ["Leases", `${count(s.leases)} of writers, ${count(s.granted_leases)} granted, ${count(s.sessions)} sessions`],
        ["Oldest overdue", num(s.oldest_overdue_ms) && duration(s.oldest_overdue_ms)],
        ["Stored", `${bytes(s.stored_bytes)} in blocks, ${bytes(s.tail_bytes)} in tails, ${bytes(s.garbage_bytes)} wait to be deleted`],
        ["Trash", num(s.trash_files) && `${count(s.trash_files)} deleted files of ${bytes(s.trash_bytes)} can be restored`],
        ["Snapshots", num(s.snapshots) && `${count(s.snapshots)}; ${bytes(s.snapshot_bytes)} in blocks are only in them`],
        ["Disk", num(s.disk_total) && `${bytes(s.disk_free)} free of ${bytes(s.disk_total)}`], ["Memory", bytes(s.heap_bytes)],
        ["ZooKeeper", num(s.zookeeper_nodes) && `${bytes(s.zookeeper_bytes)} in ${count(s.zookeeper_nodes)} nodes`],
        ["Clocks", (s.clocks || []).map((c) => `${num(c.ahead_ms)} ms ahead of ${c.than} (± ${num(c.bound_ms)} ms)`).join(", ")],
        ["Scrub", s.scrub && `${num(s.scrub.began_unix_ms) ? `${bytes(s.scrub.read_bytes)} of this pass` : "rests"}, ${count(s.scrub.damaged)} damaged${num(s.scrub.late_ms) ? `, ${duration(s.scrub.late_ms)} late` : ""}, last pass ${num(s.scrub.whole_unix_ms) ? `ended ${new Date(num(s.scrub.whole_unix_ms)).toISOString()}` : "not ended yet"}`],
        ["Archive", s.archive && `${!num(s.archive.txid) ? "not known yet" : num(s.archive.records) ? `${count(s.archive.records)} changes of the last ${duration(s.archive.lag_ms)} are not in it yet` : "has every change"}${num(s.archive.holes) ? `, ${count(s.archive.holes)} holes` : ""}${s.archive.problem ? `: ${s.archive.problem}` : ""}`],
        ["Audit log", s.audit && `${count(s.audit.lines)} lines, ${count(s.audit.lost)} lost${s.audit.problem ? `: ${s.audit.problem}` : ""}`],
      ]),
      el("h2", {}, "Limits"),
      table("Limits", [
        ["Of", (r) => r.resource], ["In use", (r) => amount(r, r.used), "num"], ["At most", (r) => amount(r, r.limit), "num"], ["", (r) => `${Math.round(100 * num(r.used) / num(r.limit))} %`, "num"],
        ["Full in", (r) => (r.full_ms === undefined ? "" : el("span", { class: num(r.full_ms) < 86400000 ? "bad" : "" }, num(r.full_ms) ? duration(r.full_ms) : "now"))], ["Refused then", (r) => r.refused],
      ], (s.rooms || []).slice(0, 5)),
      s.quotas?.length ? [el("h2", {}, "Quotas that are nearly used up"), quotas("Quotas that are nearly used up", s.quotas)] : null,
      el("h2", {}, "Slow or greedy clients"),
      s.greedy?.length ? table("Greedy clients", [
        ["Who", (g) => g.who], ["Of", (g) => g.what], ["Has", (g) => count(g.held), "num"], ["At most", (g) => (num(g.most) ? count(g.most) : ""), "num"], ["Refused", (g) => count(g.refused), "num"], ["Delayed", (g) => (g.what === "watches" && num(g.delayed) ? `${count(g.delayed)} fell behind` : count(g.delayed)), "num"],
      ], s.greedy) : el("p", { class: "dim" }, "None, or you are no superuser. Who holds an eighth of what all share, was refused more, had to wait, or was too slow for his watch, is listed here."));
  };
  return { often: load };
}
