import { bytes, count, el, list, num, show, table } from "./dom.js";
import { get } from "./api.js";

let samples = [];
let now = 0; // the namenode's time of day

const w = 480;
const h = 150;

// plot is a line for each series over the last hour, or less. A gap stays one.
export function plot(title, series, unit = (v) => count(Math.round(v * 100) / 100)) {
  const points = series.flatMap((s) => s.points.map((p) => p[1]));
  const top = Math.max(0, ...points) || 1;
  const times = samples.map((s) => s.at);
  const from = Math.min(times[0], times.at(-1) - 60000);
  const span = Math.max(times.at(-1) - from, 1);
  const x = (t) => (40 + ((w - 44) * (t - from)) / span).toFixed(1);
  const y = (v) => (h - 18 - ((h - 30) * v) / top).toFixed(1);
  const line = (s) => s.points.map(([t, v], i) => `${i && t - s.points[i - 1][0] < 12000 ? "L" : "M"}${x(t)} ${y(v)}h0`).join("");
  const last = (s) => (s.points.length && s.points.at(-1)[0] === times.at(-1) ? s.points.at(-1)[1] : 0);
  const minutes = Math.round(span / 60000);
  return el("figure", {}, el("figcaption", {}, title),
    el("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${title}: ${series.map((s) => `${s.name} ${unit(last(s))}`).join(", ") || "nothing"}` },
      el("line", { class: "axis", x1: 40, x2: w - 4, y1: h - 18, y2: h - 18 }), el("line", { class: "axis", x1: 40, x2: w - 4, y1: 12, y2: 12 }),
      el("text", { x: 0, y: 16 }, points.length ? unit(top) : ""), el("text", { x: 0, y: h - 14 }, "0"), el("text", { x: 40, y: h - 3 }, `${minutes} min ago`), el("text", { x: w - 4, y: h - 3, "text-anchor": "end" }, "now"),
      series.map((s, i) => el("path", { class: `s${i % 6}`, d: line(s) }))),
    el("ul", { class: "key" }, series.map((s, i) => el("li", { class: `s${i % 6}` }, `${s.name} ${unit(last(s))}`))));
}

const gauge = (name, key) => ({ name, points: samples.filter((s) => key in s.gauges).map((s) => [s.at, s.gauges[key]]) });
const rate = (op) => ({ name: op, points: samples.map((s) => [s.at, s.calls[op]?.[0] || 0]) });
const took = (op, i) => ({ name: op, points: samples.filter((s) => op in s.calls).map((s) => [s.at, s.calls[op][i]]) });
const ms = (v) => `${v < 10 ? v.toFixed(2) : Math.round(v)} ms`;

// growth is how much a gauge grew a second.
function growth(name, key) {
  const g = gauge(name, key).points;
  return { name, points: g.slice(1).map(([t, v], i) => [t, Math.max(0, (1000 * (v - g[i][1])) / Math.max(t - g[i][0], 1))]) };
}

function difference(name, a, b) {
  return { name, points: samples.filter((s) => a in s.gauges && b in s.gauges).map((s) => [s.at, Math.max(0, s.gauges[a] - s.gauges[b])]) };
}

// figures are rates, times and the journal of the last hour.
export function figures({ main, signal }) {
  const load = async () => {
    const r = await get("figures", { after: samples.at(-1)?.n || 0 }, signal);
    now = num(r.now_unix_ms);
    if (r.samples.length && r.samples[0].n <= (samples.at(-1)?.n || 0)) samples = []; // the namenode began again
    samples = samples.concat(r.samples).slice(-720);
    if (!samples.length) {
      show(main, el("h1", {}, "Figures"), el("p", {}, "The first ones come in some seconds."));
      return;
    }
    const rates = new Map();
    for (const s of samples) for (const [op, [rate]] of Object.entries(s.calls)) rates.set(op, (rates.get(op) || 0) + rate);
    const ops = [...rates.keys()].sort((a, b) => rates.get(b) - rates.get(a));
    const most = ops.slice(0, 6);
    const current = samples.at(-1);
    show(main, el("h1", {}, "Figures"),
      el("div", { class: "plots" },
        plot("Calls a second", most.map(rate)),
        plot("Time of 99 of 100 calls", most.map((op) => took(op, 2)), ms),
        plot("Time of half of the calls", most.map((op) => took(op, 1)), ms),
        plot("Journal: changes a second", [growth("changes", "txid")]),
        plot("Journal: changes that are not durable, or not here yet", [difference("changes", "durable_txid", "txid"), difference("not durable", "txid", "durable_txid")]),
        plot("Journal: bytes", [gauge("kept", "journal_bytes"), gauge("waiting for the disk", "journal_backlog_bytes"), gauge("in ZooKeeper", "zookeeper_journal_bytes")].filter((s) => s.points.length), bytes),
        plot("Leases", [gauge("open files", "open_files"), gauge("leases", "leases"), gauge("granted", "granted_leases"), gauge("connected", "sessions_connected")]),
        plot("Leases that expired, a second", [gauge("expired", "leases_expired_total")]),
        plot("Bytes in memory, in the trash and to be deleted", [gauge("tails", "tail_bytes"), gauge("garbage", "garbage_bytes"), gauge("trash", "trash_bytes")], bytes),
        plot("Connections and watches", [gauge("connections", "connections"), gauge("watches", "watchers")]),
        plot("Refused or slow, a second", [gauge("refused", "shares_refused_total"), gauge("told to retry", "calls_shed_total"), gauge("seconds delayed", "calls_delayed_seconds_total"), gauge("watches too slow", "watchers_too_slow_total")])),
      el("h2", {}, "Calls, in the last five seconds"),
      table("Calls", [["Call", (op) => op], ["A second", (op) => (current.calls[op]?.[0] || 0).toFixed(1), "num"], ["Half took at most", (op) => ms(current.calls[op]?.[1] || 0), "num"], ["99 of 100 took at most", (op) => ms(current.calls[op]?.[2] || 0), "num"]], ops),
      list([["Time", new Date(now).toISOString()]]));
  };
  return { often: load };
}
