// What more than one view shows.

import { h } from "../dom.js";
import { bytesText, readable, time } from "../format.js";

export const NAMELESS = "(no name)";
const GOOD = ["nothing was written since the last cleaning", "the log holds no record"];
const BAD = ["offline", "not_served"];

// Why a topic's partitions are not cleaned: what asks most for a look, and all of it in the title.
export function badge(one) {
  const reasons = Object.entries(one.reasons).sort(
    ([a, many], [b, more]) => weight(b) - weight(a) || more - many,
  );
  const warning = one.warning && h("span", { class: "badge bad", title: one.warning }, "policy");
  if (!reasons.length) return warning || h("span", { class: "quiet" }, "not compacted");
  const [[words]] = reasons;
  const kind = ["good", "", "due", "bad"][weight(words)];
  const all = reasons.map(([why, many]) => `${many}: ${why}`).join("\n");
  const more = reasons.length > 1 ? ` +${reasons.length - 1}` : "";
  return [h("span", { class: `badge ${kind}`, title: all }, words.replaceAll("_", " ") + more), warning];
}

function weight(words) {
  if (BAD.includes(words)) return 3;
  if (words === "eligible") return 2;
  return GOOD.includes(words) ? 0 : 1;
}

// A client calls its group what it likes.
export function groupLink(group) {
  return h("a", { href: `#/groups/${encodeURIComponent(group)}` }, readable(group) || NAMELESS);
}

export function topicLink(topic, partition = null) {
  const name = partition === null ? topic : `${topic}-${partition}`;
  return h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, name);
}

export function content(row, name) {
  const text = bytesText(row, name);
  if (text === null) return h("span", { class: "null" }, "null");
  return h("span", { class: "content" }, text);
}

export function headers(row) {
  if (!row.headers.length) return "–";
  return row.headers.map((one) => h("div", {}, `${readable(one.key)}=`, content(one, "value")));
}

export function problems(found) {
  return found.map((words) => h("p", { class: "trouble" }, words));
}

export function before(was, is, words) {
  return was === is ? words(was) : `${words(was)} → ${words(is)}`;
}

export function when(ms) {
  return h("span", { class: "time" }, time(ms));
}

// The broker's own words; a command in them is set apart.
export function sentence(words) {
  return words.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}
