// SPDX-License-Identifier: Apache-2.0
//
// The filters that are on, each as a button that removes it; and what a row of the table filters by.
import { ageText, Class, CLASSES, Filter, sizeText } from "./classes";
import { make } from "./dom";
import { nameFrames } from "./names";
import { Row } from "./rows";
import { Scene } from "./scene";
import { filterProfile } from "./shares";
import { State } from "./state";
import { makeTree, namesTo, nodeAt, nodeOfNames, positionsOf, wholePath } from "./tree";

const NONE: Filter = { thread: "", size: null, age: null };

export type FilterName = Class | "focus" | "path" | "zoom";

// Tells a row, and the chip of the same filter, apart from all others.
export function keyOf(filter: FilterName, value: string | number): string {
  return `${filter}:${value}`;
}

// The filters, then `matches`, what the search has found.
export function makeChips(scene: Scene, matches: HTMLOutputElement): HTMLElement {
  const { state } = scene.host;
  const chips = make("div", { class: "chips" });
  const add = (filter: FilterName, value: string | number, text: string, remove: () => void): void => {
    chips.append(
      make(
        "button",
        { type: "button", class: "chip", title: "Remove this filter", "data-chip": filter, "data-of": keyOf(filter, value), click: remove },
        make("span", { class: "chip-text" }, text),
        "×",
      ),
    );
  };
  const age = ageText(state.age ?? 0);
  const textOf = { thread: state.thread, size: sizeText(state.size ?? 0), age: /^\d/.test(age) ? `${age} old` : age };
  for (const by of CLASSES) {
    const value = state[by];
    if (value !== NONE[by] && value !== null) add(by, value, textOf[by], () => change(scene, { [by]: NONE[by] }));
  }
  const { host } = scene;
  if (state.focus !== "") add("focus", state.focus, `through ${state.focus}`, () => host.change({ focus: "", zoom: [] }));
  if (state.path !== "") add("path", state.path, `path ${state.path}`, () => host.change({ path: "", zoom: [] }));
  if (state.zoom.length > 0) add("zoom", "", "zoomed", () => host.change({ zoom: [] }));
  if (chips.childElementCount === 0 && state.search === "") {
    chips.append(make("span", { class: "hint" }, "Click a box to zoom, a row to filter. Keys: / search, 1 2 3 views, arrows in the graph, Esc back, ? help."));
  }
  chips.append(matches);
  return chips;
}

// Keeps only what is in the row; a second choice removes the filter.
export function filterByClass(scene: Scene, by: Class, row: Row): void {
  const value = by === "thread" ? row.name : row.number;
  change(scene, { [by]: scene.host.state[by] === value ? NONE[by] : value });
}

function change(scene: Scene, part: Partial<Filter>): void {
  scene.host.change({ ...part, zoom: zoomAfter(scene, part) });
}

// Where the zoomed box is when the filter has changed: other siblings may be larger then.
function zoomAfter(scene: Scene, part: Partial<Filter>): number[] {
  const { host, whole, profile, names, keeps } = scene;
  const { state } = host;
  if (state.zoom.length === 0 || state.view === "butterfly") return [];
  const options = { ...state, direction: state.view === "icicle" ? "inwards" : "outwards", cut: wholePath, keeps } as const;
  const before = makeTree(profile, names, options);
  const texts = namesTo(before, nodeAt(before, state.zoom)).map((name) => before.texts[name]);
  const next: State = { ...state, ...part };
  const after = makeTree(filterProfile(whole, next), nameFrames(whole, state.by, !state.full), options);
  return positionsOf(after, nodeOfNames(after, texts));
}
