// Makes elements. Whatever comes from records or names becomes text, never markup.

import { whileShown } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map((child) => (keptNames.has(child) ? spot(keptNames.get(child)) : child)),
  );
  return element;
}

// A table. A heading is a text, or [text, "number"] where its cells are set to the right.
export function table(headings, rows, { empty = "Nothing here.", caption = null } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const kinds = headings.map((one) => (Array.isArray(one) ? one[1] : null));
  const names = headings.map((one) => (Array.isArray(one) ? one[0] : one));
  const cell = (tag, kind, content) => h(tag, { class: kind }, content ?? "–");
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      caption && h("caption", {}, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          names.map((name, at) => cell("th", kinds[at], name)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { class: row.style },
            (row.cells ?? row).map((content, at) => cell("td", kinds[at], content)),
          ),
        ),
      ),
    ),
  );
}

export function facts(pairs) {
  return h(
    "dl",
    {},
    pairs.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "–")]),
  );
}

export function button(label, onclick, kind = null) {
  return h("button", { type: "button", class: kind, onclick }, label);
}

export function checkbox(label, checked, onchange) {
  const box = h("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return h("label", { class: "check" }, box, " ", label);
}

// A row of fields; submitted, `onsubmit` gets their values by name.
export function form(fields, label, onsubmit) {
  const made = h("form", { class: "fields" }, fields, h("button", {}, label));
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    onsubmit(Object.fromEntries(new FormData(made)));
  });
  return made;
}

export function field(name, label, value = "", more = {}) {
  return h("label", {}, label, " ", h("input", { name, value, autocomplete: "off", ...more }));
}

export function choice(name, label, options, value, more = {}) {
  return h(
    "label",
    {},
    label,
    " ",
    h(
      "select",
      { name, ...more },
      options.map(([key, words]) =>
        h("option", { value: key, selected: String(key) === String(value) }, words),
      ),
    ),
  );
}

// To a view, also to the one that is shown: who asks again wants to know what is true now.
export function go(hash) {
  const before = location.hash;
  location.hash = hash;
  if (location.hash === before) dispatchEvent(new Event("hashchange"));
}

// What a person has filled in or an action has said outlives a view that is made anew: the same element goes
// into the new one, until another view is shown. Its name says of whom it is: an answer that comes late may
// make that of a view which was left. To move an element takes the focus and a press from it, so a view has a
// spot there until it is shown.
const keptElements = new Map();
const keptNames = new WeakMap();

export function kept(name, make) {
  if (!keptElements.has(name)) {
    keptElements.set(name, make());
    keptNames.set(keptElements.get(name), name);
  }
  return keptElements.get(name);
}

export function forgetKept() {
  keptElements.clear();
}

// A view that is shown now: what is kept goes where its spots are.
export function withKept(node) {
  for (const one of node.querySelectorAll("template")) one.replaceWith(keptElements.get(one.dataset.kept));
  return node;
}

function spot(name) {
  return h("template", { "data-kept": name });
}

// What was asked last is what is shown in a place: the answer to a question before comes too late, however it
// comes. Meanwhile the place says that it is not up to date. What `ask` asks may end with its signal.
const questions = new WeakMap();

export async function answered(place, ask) {
  questions.get(place)?.abort();
  const mine = new AbortController();
  whileShown().addEventListener("abort", () => mine.abort());
  questions.set(place, mine);
  place.setAttribute("aria-busy", "true");
  let found;
  try {
    found = await ask(mine.signal);
  } catch (error) {
    found = [trouble(error)];
  }
  if (questions.get(place) !== mine || mine.signal.aborted) return;
  place.removeAttribute("aria-busy");
  place.replaceChildren(...found);
}

export function trouble(error) {
  return h("p", { class: "trouble", role: "alert" }, error.message);
}

// Asks before anything is changed; whether the answer is yes. A second Enter out of habit cancels, the second
// half of a double click says nothing, and who goes to another view says no.
export function sure(words, yes) {
  const dialog = document.getElementById("question");
  return new Promise((resolve) => {
    const end = (answer) => {
      dialog.close();
      resolve(answer);
    };
    dialog.replaceChildren(
      h("p", { id: "asked" }, words),
      h(
        "div",
        { class: "fields" },
        button(yes, (event) => event.detail < 2 && end(true), "danger"),
        h("button", { type: "button", autofocus: true, onclick: () => end(false) }, "Cancel"),
      ),
    );
    dialog.onclose = () => resolve(false);
    dialog.showModal();
  });
}
