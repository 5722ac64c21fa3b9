// What is shown is made of elements and text only: text of users never becomes HTML.

const svgTags = new Set(["svg", "rect", "line", "path", "text", "title", "g"]);

// el makes an element. Of props, on… are handlers, class, data-… and others attributes; false and
// null are left out. Children are elements or text; null is none.
export function el(tag, props = {}, ...children) {
  const svg = svgTags.has(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (!svg && (name === "value" || name === "checked" || name === "disabled")) e[name] = value;
    else e.setAttribute(name, value === true ? "" : value);
  }
  append(e, children);
  return e;
}

function append(e, children) {
  for (const c of children.flat(Infinity)) {
    if (c !== null && c !== undefined && c !== false) e.append(c);
  }
}

// show replaces what is in an element. What had the focus gets it again, if there is one of
// the same data-focus.
export function show(parent, ...children) {
  const key = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  parent.replaceChildren();
  append(parent, children);
  if (key === undefined) return;
  for (const e of parent.querySelectorAll("[data-focus]")) {
    if (e.dataset.focus === key) { e.focus({ preventScroll: true }); return; }
  }
}

// table shows rows under columns: [title, cell(row), class]. On a narrow screen each row is a card.
export function table(caption, columns, rows, body) {
  body ||= el("tbody");
  show(body, rows.map((r) => el("tr", {}, columns.map(([title, cell, cls]) => el("td", { "data-label": title, class: cls }, cell(r))))));
  if (body.isConnected) return body;
  return el("table", { class: "cards", "aria-label": caption },
    el("thead", {}, el("tr", {}, columns.map(([title, , cls]) => el("th", { scope: "col", class: cls }, title)))), body);
}

// list is a list of terms and what they are; what is nothing is left out.
export function list(pairs) {
  return el("dl", {}, pairs.filter(([, v]) => v).map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

export const num = (v) => Number(v || 0);
export const count = (v) => num(v).toLocaleString("en");

export function bytes(v) {
  let n = num(v);
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024) return `${unit === "B" ? n : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} PiB`;
}

export function duration(ms) {
  const s = Math.round(num(ms) / 1000);
  if (num(ms) < 1000) return `${Math.round(num(ms))} ms`;
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${s % 60 ? `${s % 60} s` : ""}`.trim();
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

export const time = (ms) => new Date(num(ms)).toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");

export const plural = (n, one, more) => `${count(n)} ${num(n) === 1 ? one : more}`;

// ended is why something ended, and by whom, if that is known.
export const ended = (reason, by) => [reason, by && `by ${by.client ? `${by.client} ` : ""}(user ${by.user || "?"}${by.host ? `, host ${by.host}` : ""})`].filter(Boolean).join(" ");

export const name = (h) => `${h.client || "?"} (user ${h.user || "?"}, host ${h.host || "?"}${num(h.pid) ? `, pid ${h.pid}` : ""})`;

// ask shows a dialog and returns it. It is gone once it is closed, and the focus is where it was.
export function ask(title, ...children) {
  const d = el("dialog", { "aria-label": title }, el("h1", {}, title), children);
  d.addEventListener("close", () => d.remove());
  document.body.append(d);
  d.showModal();
  return d;
}

// later calls fn when nothing has called for it again for a moment.
export function later(fn) {
  let t;
  return () => { clearTimeout(t); t = setTimeout(fn, 250); };
}
