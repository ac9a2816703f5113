// What a person does with the page just now, which nothing that comes by itself may take away.

const AT_REST_MS = 30_000;
const place = document.getElementById("view");
let isPressed = false;
let usedAt = 0;

// Who types, marks a text or is being asked does not lose it, nor a click whoever has the mouse down: what is
// replaced meanwhile gets none. A field that nobody types in any more holds nothing up.
export function isInUse() {
  if (isMarking(place) || document.querySelector("dialog[open]")) return true;
  const active = document.activeElement;
  const isField = place.contains(active) && active.matches("input:not([type=checkbox]), select, textarea");
  return isField && performance.now() - usedAt < AT_REST_MS;
}

// Whether a text in there is marked, or may be just now.
export function isMarking(within) {
  const selection = getSelection();
  return isPressed || (!selection.isCollapsed && within.contains(selection.anchorNode));
}

// Once the page is looked at again.
export function unhidden(act) {
  document.addEventListener("visibilitychange", act, { once: true });
}

for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
  addEventListener(kind, (event) => (isPressed = event.buttons !== 0), true);
for (const kind of ["pointerdown", "keydown", "input"])
  addEventListener(kind, () => (usedAt = performance.now()), true);
