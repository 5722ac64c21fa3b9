import { el, plural } from "./dom.js";
import { attempt } from "./app.js";
import { latest } from "./api.js";

// pager is a list that the namenode tells a page at a time: its buttons, and where each page
// begins. ask(cursor, signal) shows one page and returns [cursor of the next one, rows]. A turn
// counts once its page is there.
export function pager(signal, [one, more], ask) {
  let shown = [""];   // where the pages up to the one that is shown begin
  let wanted = shown; // the same of one that is turned to
  let following = "";
  const text = el("span", { class: "dim", role: "status" });
  const back = el("button", { type: "button", "data-page": "back", disabled: true, onclick: () => attempt(() => turn(shown.slice(0, -1))) }, "Back");
  const next = el("button", { type: "button", "data-page": "next", disabled: true, onclick: () => attempt(() => turn([...shown, following])) }, "Next");
  const turn = latest(signal, async (both, to) => {
    wanted = to;
    let cursor, rows;
    try { [cursor, rows] = await ask(to.at(-1), both); } catch (e) {
      if (!both.aborted) wanted = shown;
      throw e;
    }
    shown = to;
    following = cursor || "";
    next.disabled = !following;
    back.disabled = shown.length < 2;
    text.textContent = rows ? `page ${shown.length}, ${plural(rows, one, more)}${following ? "; there are more" : ""}` : "none";
  });
  return {
    text,
    buttons: el("div", { class: "pager" }, back, next, text),
    again: () => turn(wanted),
    first: () => {
      shown = [""];
      next.disabled = back.disabled = true;
      return turn(shown);
    },
  };
}
