import { bytes, count, duration, el, list, name, num, show, table, time } from "./dom.js";
import { call, get } from "./api.js";
import { go } from "./app.js";
import { quotas } from "./fleet.js";
import { past } from "./history.js";

const pageSize = 100;
const follow = 1; // REF_HOW_FOLLOW_LAST

const types = { FILE_TYPE_FILE: "file", FILE_TYPE_DIRECTORY: "folder", FILE_TYPE_SYMLINK: "link" };
const mode = (a) => num(a.mode).toString(8).padStart(4, "0");
const join = (dir, entry) => (dir === "/" ? `/${entry}` : `${dir}/${entry}`);

function crumbs(path) {
  const parts = path.split("/").filter(Boolean);
  return el("h1", {}, el("a", { href: go("tree", "/") }, "/"), parts.map((p, i) => [i ? "/" : null, el("a", { href: go("tree", `/${parts.slice(0, i + 1).join("/")}`) }, p)]));
}

const openBy = (a) => a.open && `${name(a.open.holder)}, epoch ${a.open.epoch}, idle ${duration(a.open.lease_idle_ms)}, ${a.open.soft_expired ? "can be taken now" : `can be taken in ${duration(a.open.takeable_in_ms)}`}`;

const acls = { 1: "an ACL", 2: "a default ACL", 3: "an ACL and a default ACL" };

function attributes(a, path) {
  return list([
    ["Path", path], ["Type", types[a.type]], ["Length", a.type === "FILE_TYPE_FILE" && `${bytes(a.length)} (${count(a.length)} bytes)`], ["Entries", a.type === "FILE_TYPE_DIRECTORY" && count(a.entries)],
    ["Owner", `${a.user}:${a.group}`], ["Mode", mode(a)], ["Changed", time(a.mtime_unix_ms)], ["Inode", a.inode], ["Link to", a.link_target],
    ["Blocks", num(a.blocks) && `${count(a.blocks)}, and a tail of ${bytes(a.tail_length)}`], ["Open for write by", openBy(a)], ["Attached to lease", num(a.lease) && el("a", { href: go("lease", `/${BigInt(a.lease).toString(16).padStart(16, "0")}`) }, BigInt(a.lease).toString(16))],
    ["Extended attributes", num(a.xattrs) && count(a.xattrs)], ["ACL", acls[a.acl]],
    ["History", a.type === "FILE_TYPE_FILE" && el("a", { href: past("path", path) }, "who held it")],
  ]);
}

const text = (b64) => {
  const raw = Uint8Array.from(atob(b64 || ""), (c) => c.charCodeAt(0));
  try { return new TextDecoder("utf-8", { fatal: true }).decode(raw); } catch { return `${raw.length} bytes: ${[...raw.slice(0, 64)].map((b) => b.toString(16).padStart(2, "0")).join(" ")}`; }
};

// more is what an inode has besides its attributes, as far as the caller may see it.
async function more(a, at, signal) {
  const parts = [];
  const part = async (title, ask) => {
    try {
      const found = await ask();
      if (found) parts.push(el("h2", {}, title), found);
    } catch (e) { if (e.name === "AbortError") throw e; parts.push(el("p", { class: "bad" }, e.message)); }
  };
  if (a.type === "FILE_TYPE_DIRECTORY") {
    await part("Quotas", async () => {
      const r = await call("GetQuota", { at }, signal);
      return r.quotas?.length && quotas("Quotas", r.quotas);
    });
  }
  if (num(a.xattrs)) {
    await part("Extended attributes", async () => {
      const r = await call("Xattrs", { at }, signal);
      return table("Extended attributes", [["Name", (x) => x.name], ["Value", (x) => text(x.value)]], r.xattrs || []);
    });
  }
  if (num(a.acl)) {
    await part("ACL", async () => el("pre", {}, JSON.stringify(await call("Acl", { at }, signal), null, 1)));
  }
  if (num(a.blocks)) {
    await part("Blocks", () => blocks(a, at, signal));
  }
  return parts;
}

async function blocks(a, at, signal) {
  const body = el("tbody");
  const columns = [["Offset", (b) => count(b.offset), "num"], ["Length", (b) => bytes(b.used_length), "num"], ["Stored", (b) => bytes(b.stored_length), "num"], ["Block", (b) => `${b.term}/${b.seq}`], ["CRC32C", (b) => num(b.crc32c).toString(16).padStart(8, "0")]];
  const end = num(a.length) - num(a.tail_length);
  let offset = 0;
  const button = el("button", { type: "button", onclick: () => load() }, "More blocks");
  const load = async () => {
    const r = await call("GetFile", { at, offset: String(offset), length: String(end - offset), max_blocks: 50 }, signal);
    for (const b of r.blocks || []) {
      body.append(el("tr", {}, columns.map(([title, cell, cls]) => el("td", { "data-label": title, class: cls }, cell({ ...b, offset })))));
      offset += num(b.used_length);
    }
    button.hidden = offset >= end || !r.blocks?.length;
  };
  await load();
  const t = el("table", { class: "cards", "aria-label": "Blocks" }, el("thead", {}, el("tr", {}, columns.map(([title, , cls]) => el("th", { class: cls }, title)))), body);
  return el("div", {}, t, button);
}

const kept = 256 * 1024; // characters of content that are shown

// content shows the end of a file, and what is appended.
function content(a, signal) {
  const pre = el("pre", { tabindex: 0, "aria-label": "Content", id: "content" });
  const state = el("span", { class: "dim", role: "status", id: "following" });
  const button = el("button", { type: "button", id: "follow", onclick: () => toggle() }, "Follow");
  let stop = null;
  let at = 0;
  let cut;
  let decoder = new TextDecoder();
  const add = (r) => {
    if (cut !== undefined && cut !== r.cut) { pre.textContent = ""; decoder = new TextDecoder(); }
    cut = r.cut;
    const raw = Uint8Array.from(atob(r.data), (c) => c.charCodeAt(0));
    const shown = (pre.textContent + decoder.decode(raw, { stream: true }).replace(/[^\P{C}\n\t]/gu, "·")).slice(-kept);
    const below = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
    pre.textContent = shown;
    if (below) pre.scrollTop = pre.scrollHeight;
    at = r.offset + raw.length;
    state.textContent = `${bytes(r.attr.length)}${r.attr.open ? `, written by ${r.attr.open.holder.client}` : ", closed"}`;
    return raw.length;
  };
  const last = async (s) => { pre.textContent = ""; decoder = new TextDecoder(); cut = undefined; add(await get("read", { inode: a.inode, last: true }, s)); };
  const run = async (s) => {
    for (let wait = 0; !s.aborted;) {
      try {
        const r = await get("read", { inode: a.inode, offset: at, follow: true }, s);
        wait = 0;
        // Truncated, or so far behind that only the end is of interest.
        if (num(r.attr.length) < at || num(r.attr.length) - at > 16 * kept) { await last(s); continue; }
        const n = add(r);
        if (!n && !r.attr.open) { state.textContent += "; nothing more comes"; return; }
      } catch (e) {
        if (e.name === "AbortError") return;
        state.textContent = e.message;
        if (e.status !== 0 && e.status !== 429 && e.status !== 503 && e.status !== 504) return;
        wait = Math.min(wait * 2 || 500, 8000);
        await new Promise((f) => { setTimeout(f, wait); });
      }
    }
  };
  const toggle = async () => {
    if (stop) { stop.abort(); return; }
    stop = new AbortController();
    const both = AbortSignal.any([stop.signal, signal]);
    button.textContent = "Stop";
    await run(both);
    stop = null;
    button.textContent = "Follow";
  };
  const box = el("section", {}, el("h2", {}, "Content"), el("div", { class: "pager" }, button, state), pre);
  last(signal).catch((e) => { state.textContent = e.message; });
  return box;
}

// tree is a folder, a page of names at a time, or a file.
export const tree = (of) => ({ once: () => read(of) });

async function read({ main, path, params, signal }) {
  const at = { path, how: follow };
  let attr;
  try {
    ({ attr } = await call("Stat", { at }, signal));
  } catch (e) {
    if (e.status === 404) show(main, crumbs(path), el("p", {}, el("a", { href: past("path", path) }, "Who held what was there")));
    throw e;
  }
  if (attr.type !== "FILE_TYPE_DIRECTORY") {
    const byInode = { base: attr.inode };
    show(main, crumbs(path), attributes(attr, path), content(attr, signal), await more(attr, byInode, signal));
    return;
  }
  const after = params.get("after") || "";
  const r = await call("List", { at, after, limit: pageSize }, signal);
  const entries = r.entries || [];
  const jump = el("input", { name: "jump", type: "search", value: "", placeholder: "a name, or how it begins", spellcheck: "false" });
  // Names after the last one that is before what was typed.
  const before = (s) => (s ? s.slice(0, -1) + String.fromCodePoint(s.codePointAt(s.length - 1) - 1) + "\u{10ffff}" : "");
  const to = (e) => { e.preventDefault(); location.hash = go("tree", path, { after: before(jump.value) }); };
  const last = entries.at(-1)?.name;
  show(main, crumbs(path),
    el("form", { onsubmit: to, role: "search" }, el("label", {}, "Go to", jump), el("button", { type: "submit" }, "Go")),
    table(`Names in ${path}`, [
      ["Name", (e) => el("a", { href: go("tree", join(path, e.name)), "data-focus": e.name }, e.name, e.attr.type === "FILE_TYPE_DIRECTORY" ? "/" : "")],
      ["Type", (e) => (e.attr.link_target ? `link to ${e.attr.link_target}` : types[e.attr.type])],
      ["Length", (e) => (e.attr.type === "FILE_TYPE_FILE" ? bytes(e.attr.length) : e.attr.type === "FILE_TYPE_DIRECTORY" ? `${count(e.attr.entries)} names` : ""), "num"],
      ["Owner", (e) => `${e.attr.user}:${e.attr.group}`], ["Mode", (e) => mode(e.attr)], ["Changed", (e) => time(e.attr.mtime_unix_ms)],
      ["Open by", (e) => (e.attr.open ? e.attr.open.holder.client : "")],
    ], entries),
    el("div", { class: "pager" },
      el("button", { type: "button", "data-page": "back", disabled: !after, onclick: () => history.back() }, "Back"),
      el("button", { type: "button", "data-page": "next", disabled: !r.more, onclick: () => { location.hash = go("tree", path, { after: last }); } }, "Next"),
      el("span", { class: "dim", role: "status" }, `${count(entries.length)} of ${count(r.directory.entries)} names`)),
    el("h2", {}, "This folder"), attributes(attr, path), await more(attr, { base: attr.inode }, signal));
}

