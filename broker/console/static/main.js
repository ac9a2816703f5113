// Which view is shown, and when it is looked at again. A view is a function of its parameters that answers
// {node, every}: what is shown, and after how many seconds it may be made anew (0: never by itself).

import { forgetKept, h, trouble, withKept } from "./dom.js";
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

const NOT_ALLOWED = [401, 403];
const place = document.getElementById("view");
const state = document.getElementById("state");
let turn = 0;
let timer = 0;
let isPressed = false;

async function show(isAgain) {
  clearTimeout(timer);
  const mine = ++turn;
  const [name, asked] = location.hash.replace(/^#\//, "").split("?");
  const found = ROUTES.map(([pattern, view]) => [pattern.exec(name || "topics"), view]).find(
    ([match]) => match,
  );
  if (!found) {
    location.hash = "#/topics";
    return;
  }
  mark(name || "topics");
  let every = 3;
  try {
    const parameters = found[0].slice(1).map((part) => part && decoded(part));
    const view = await found[1](...parameters, new URLSearchParams(asked), () => show(true));
    if (mine !== turn) return;
    every = view.every;
    if (!isAgain) place.replaceChildren(withKept(view.node));
    else if (!isInUse()) renew(view.node);
    state.textContent = "";
    state.className = "";
  } catch (error) {
    if (mine !== turn) return;
    state.textContent = error.message;
    state.className = "trouble";
    if (!isAgain) place.replaceChildren(h("h1", {}, "That did not work"), trouble(error));
    if (NOT_ALLOWED.includes(error.status)) every = 0; // to ask again would be to be asked again
  }
  if (every) timer = setTimeout(() => (document.hidden ? wait() : show(true)), every * 1000);
}

function wait() {
  document.addEventListener("visibilitychange", () => show(true), { once: true });
}

// The same view again: who walks by keyboard stays where they are, and a wide table stays scrolled.
function renew(node) {
  const focused = document.activeElement;
  const at = place.contains(focused) ? alike(focused).indexOf(focused) : -1;
  const scrolled = Array.from(place.querySelectorAll(".scroll"), (one) => one.scrollLeft);
  place.replaceChildren(withKept(node));
  place.querySelectorAll(".scroll").forEach((one, index) => (one.scrollLeft = scrolled[index] ?? 0));
  if (at >= 0) alike(focused)[at]?.focus({ preventScroll: true });
}

// What a person takes for the same: the links that lead there, or what has the same words.
function alike(element) {
  const told = (one) => one.getAttribute("href") ?? one.textContent;
  return Array.from(place.querySelectorAll(element.tagName)).filter((one) => told(one) === told(element));
}

// Who types, marks a text or is being asked does not lose it, nor a click whoever has the mouse down: what is
// replaced meanwhile gets none.
function isInUse() {
  if (isPressed || document.querySelector("dialog[open]")) return true;
  const active = document.activeElement;
  const isTyping = place.contains(active) && active.matches("input:not([type=checkbox]), select, textarea");
  const selection = getSelection();
  return isTyping || (!selection.isCollapsed && place.contains(selection.anchorNode));
}

function mark(name) {
  document.title = `${decoded(name).replaceAll("/", " · ")} – kompakt`;
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

for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
  addEventListener(kind, (event) => (isPressed = event.buttons !== 0), true);
addEventListener("hashchange", () => {
  forgetKept();
  scrollTo(0, 0);
  show(false);
});
show(false);
