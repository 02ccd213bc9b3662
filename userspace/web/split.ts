// SPDX-License-Identifier: Apache-2.0
//
// The border between the graph and the table. The mouse moves it, and so do the arrow keys; Enter and a double click put
// it back to where style.css has it. The browser remembers it for all profiles, one place for panes side by side and
// one for panes above each other.
import { make } from "./dom";

// The share of the graph with the border, in percent of all.
const LEAST = 20;
const MOST = 80;
const STEP = 2;

// `panes`: a flex container of the graph, this element, and the table at its side.
export function makeSplit(panes: HTMLElement, side: HTMLElement): HTMLElement {
  const split = make("div", {
    id: "split",
    class: "split",
    role: "separator",
    tabindex: 0,
    title: "Drag, or use the arrow keys; a double click, or Enter, puts it back",
    "aria-label": "Border between graph and table",
    "aria-valuemin": LEAST,
    "aria-valuemax": MOST,
  });
  const isStacked = (): boolean => getComputedStyle(panes).flexDirection === "column";
  const lengthOf = (element: HTMLElement): number => element.getBoundingClientRect()[isStacked() ? "height" : "width"];
  const shareNow = (): number => Math.round(100 * (1 - lengthOf(side) / Math.max(1, lengthOf(panes))));
  const show = (): void => {
    const kept = recall(isStacked());
    if (kept === null) panes.style.removeProperty("--table");
    else panes.style.setProperty("--table", `${100 - kept}%`);
    split.setAttribute("aria-orientation", isStacked() ? "horizontal" : "vertical");
    split.setAttribute("aria-valuenow", String(shareNow()));
  };
  const move = (share: number | null): void => {
    remember(isStacked(), share === null ? null : Math.min(MOST, Math.max(LEAST, share)));
    show();
  };
  split.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const [less, more] = isStacked() ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
    const places: { [key: string]: number | null } = { [less]: shareNow() - STEP, [more]: shareNow() + STEP, Home: LEAST, End: MOST, Enter: null };
    const place = places[event.key];
    if (place === undefined) return;
    event.preventDefault();
    move(place);
  });
  split.addEventListener("dblclick", () => move(null));
  split.addEventListener("pointerdown", (event) => {
    split.setPointerCapture(event.pointerId);
    event.preventDefault();
    split.focus({ preventScroll: true });
  });
  split.addEventListener("pointermove", (event) => {
    if (!split.hasPointerCapture(event.pointerId)) return;
    const box = panes.getBoundingClientRect();
    const share = isStacked() ? (event.clientY - box.top) / box.height : (event.clientX - box.left) / box.width;
    move(100 * share);
  });
  // The window may get another shape.
  new ResizeObserver(show).observe(panes);
  return split;
}

function keyOf(isStacked: boolean): string {
  return isStacked ? "heaptap.split.stacked" : "heaptap.split";
}

// null: nothing was chosen, or the browser keeps nothing for the page.
function recall(isStacked: boolean): number | null {
  try {
    const text = localStorage.getItem(keyOf(isStacked)) ?? "";
    const share = Number(text);
    return text !== "" && share >= LEAST && share <= MOST ? share : null;
  } catch {
    return null;
  }
}

function remember(isStacked: boolean, share: number | null): void {
  try {
    if (share === null) localStorage.removeItem(keyOf(isStacked));
    else localStorage.setItem(keyOf(isStacked), share.toFixed(1));
  } catch {
    // Not allowed here: the border stays where style.css has it.
  }
}
