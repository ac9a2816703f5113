// Which view is shown, and when it is looked at again. A view is a function of its parameters that answers
// {node, every}: what is shown, and after how many seconds it may be made anew (0: never by itself).

import { isRefused, leave } from "./api.js";
import { forgetKept, go, h, trouble, withKept } from "./dom.js";
import { readable } from "./format.js";
import { isInUse, unhidden } from "./use.js";
import { brokerView } from "./views/broker.js";
import { groupView, groupsView } from "./views/groups.js";
import { quotasView } from "./views/quotas.js";
import { topicView } from "./views/topic.js";
import { topicsView } from "./views/topics.js";
import { transactionsView } from "./views/transactions.js";

const ROUTES = [
  [/^topics$/, topicsView],
  [/^topics\/([^/]+)(?:\/([^/]+))?$/, topicView],
  [/^groups$/, groupsView],
  [/^groups\/([^/]*)$/, groupView],
  [/^transactions$/, transactionsView],
  [/^quotas$/, quotasView],
  [/^broker$/, brokerView],
];

const SLOW_MS = 1000;
const REST = 4; // times as long as it took, a view is left alone: what is large costs the broker no more
const place = document.getElementById("view");
const state = document.getElementById("state");
const scrolled = new Map(); // by entry of the history, where its view was left
let entry = entryNow();
let turn = 0;
let timer = 0;
let slow = 0;
let isNew = true; // what is shown is not yet of this address: an action of the view before may end meanwhile
let told = ""; // the trouble that is shown in its place

async function show(isAgain) {
  clearTimeout(timer);
  clearTimeout(slow);
  slow = setTimeout(() => (state.textContent ||= "waiting for the broker…"), SLOW_MS);
  const mine = ++turn;
  const begun = performance.now();
  if (!isAgain) {
    isNew = true;
    told = "";
  }
  const [name, asked] = location.hash.replace(/^#\//, "").split("?");
  const found = ROUTES.map(([pattern, view]) => [pattern.exec(name || "topics"), view]).find(
    ([match]) => match,
  );
  if (!found) {
    location.replace("#/topics"); // the way back leads past it
    return;
  }
  mark(name || "topics");
  let every = 3;
  try {
    const parameters = found[0].slice(1).map((part) => part && decoded(part));
    const view = await found[1](...parameters, new URLSearchParams(asked), () => show(true));
    if (mine !== turn) return;
    every = view.every;
    if (isNew) begin(view.node);
    else if (!isInUse()) renew(view.node);
    state.textContent = "";
    state.className = "";
  } catch (error) {
    if (mine !== turn) return;
    state.textContent = error.message;
    state.className = "trouble";
    if (isNew && told !== error.message)
      place.replaceChildren(h("h1", {}, "That did not work"), trouble(error));
    told = error.message;
    if (isRefused(error)) every = 0; // to ask again would be to be asked again
  }
  clearTimeout(slow);
  const renewed = () => show(true);
  const rest = Math.max(every * 1000, REST * (performance.now() - begun));
  if (every) timer = setTimeout(() => (document.hidden ? unhidden(renewed) : renewed()), rest);
}

// Another view: who came by keyboard, or hears the page, is at its beginning or in the same field of the same
// form; who comes back finds the place where the view was left.
function begin(node) {
  const isThere = place.contains(document.activeElement);
  refocused(() => place.replaceChildren(withKept(node)));
  if (isThere && document.activeElement === document.body) place.focus({ preventScroll: true });
  scrollTo(0, scrolled.get(entry) ?? 0);
  isNew = false;
}

// The same view again: who walks by keyboard stays where they are, and a wide table stays scrolled.
function renew(node) {
  const aside = Array.from(place.querySelectorAll(".scroll"), (one) => one.scrollLeft);
  refocused(() => place.replaceChildren(withKept(node)));
  place.querySelectorAll(".scroll").forEach((one, index) => (one.scrollLeft = aside[index] ?? 0));
}

function refocused(replace) {
  const focused = document.activeElement;
  const at = place.contains(focused) ? alike(focused).indexOf(focused) : -1;
  const { selectionStart: from, selectionEnd: to } = focused;
  replace();
  if (at < 0) return;
  const same = alike(focused)[at];
  same?.focus({ preventScroll: true });
  if (typeof from === "number") same?.setSelectionRange?.(from, to);
}

// What a person takes for the same: the links that lead there, the fields of that name, the same words.
function alike(element) {
  const name = (one) => one.getAttribute("href") ?? (one.name || one.textContent);
  return Array.from(place.querySelectorAll(element.tagName)).filter((one) => name(one) === name(element));
}

function mark(name) {
  document.title = `${readable(decoded(name)).replaceAll("/", " · ")} – kompakt`;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = name.split("/")[0] === link.hash.slice(2);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function entryNow() {
  if (!history.state?.entry) history.replaceState({ entry: Math.random() }, "");
  return history.state.entry;
}

addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const isOther = event.ctrlKey || event.metaKey || event.shiftKey;
  if (!link || isOther || link.hash !== location.hash) return;
  event.preventDefault(); // where one is already: to see what is true now
  go(location.hash);
});
addEventListener("hashchange", () => {
  leave();
  forgetKept();
  document.getElementById("question").close();
  scrolled.set(entry, scrollY);
  entry = entryNow();
  show(false);
});
history.scrollRestoration = "manual"; // what is scrolled is not there yet when the browser would
show(false);
