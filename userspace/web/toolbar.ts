// SPDX-License-Identifier: Apache-2.0
//
// The buttons that choose what is shown, the search, and the filters that are on.
import { choice, make } from "./dom";
import { By } from "./names";
import { Unit, Value } from "./profile";
import { Scene } from "./scene";
import { State, View } from "./state";

export function makeToolbar(scene: Scene, help: () => void): HTMLElement {
  const { host } = scene;
  const { state } = host;
  const reset: Partial<State> = { zoom: [] };
  const search = make("input", {
    type: "search",
    id: "search",
    placeholder: "Search (regular expression)   /",
    "aria-label": "Search",
    value: state.search,
    input: (event) => {
      state.search = (event.target as HTMLInputElement).value;
      host.change({ search: state.search });
    },
  });
  return make(
    "div",
    { class: "toolbar" },
    choice<Value>(
      "Measure",
      scene.profile.subject.is_difference
        ? [["live", "Live"]]
        : [
            ["live", "Live"],
            ["allocated", "Allocated"],
          ],
      state.value,
      (value) => host.change({ value, ...reset }),
    ),
    choice<Unit>(
      "Unit",
      [
        ["bytes", "Bytes"],
        ["objects", "Objects"],
      ],
      state.unit,
      (unit) => host.change({ unit, ...reset }),
    ),
    choice<View>(
      "View",
      [
        ["icicle", "From main"],
        ["bottom-up", "Bottom-up"],
        ["butterfly", "Butterfly"],
      ],
      state.view,
      (view) => host.change({ view, ...reset }),
    ),
    choice<By>(
      "Boxes",
      [
        ["function", "Functions"],
        ["line", "Lines"],
        ["library", "Libraries"],
      ],
      state.by,
      (by) => host.change({ by, focus: "", ...reset }),
    ),
    make(
      "label",
      { class: "switch" },
      make("input", {
        type: "checkbox",
        id: "full",
        checked: state.full,
        change: (event) => host.change({ full: (event.target as HTMLInputElement).checked, focus: "", ...reset }),
      }),
      "All frames",
    ),
    search,
    make("button", { type: "button", id: "help", class: "round", title: "Keys and marks", "aria-label": "Help", click: help }, "?"),
  );
}

// The filters, each with a button that removes it; then `matches`, what the search has found.
export function makeChips(scene: Scene, matches: HTMLOutputElement): HTMLElement {
  const { host } = scene;
  const { state } = host;
  const chips = make("div", { class: "chips" });
  const add = (text: string, part: Partial<State>): void => {
    chips.append(
      make("button", { type: "button", class: "chip", title: "Remove this filter", click: () => host.change(part) }, text, " ×"),
    );
  };
  if (state.focus !== "") add(`through ${state.focus}`, { focus: "", zoom: [] });
  if (state.zoom.length > 0) add("zoomed", { zoom: [] });
  if (chips.childElementCount === 0 && state.search === "") {
    chips.append(make("span", { class: "hint" }, "Click a box to zoom, a row to filter. Keys: / search, 1 2 3 views, arrows in the graph, Esc back, ? help."));
  }
  chips.append(matches);
  return chips;
}
