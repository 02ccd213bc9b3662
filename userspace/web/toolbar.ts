// SPDX-License-Identifier: Apache-2.0
//
// The buttons that choose what is shown.
import { choice } from "./choice";
import { needsLive } from "./classes";
import { make } from "./dom";
import { By } from "./names";
import { lackOfValue, Unit, Value } from "./profile";
import { Scene } from "./scene";
import { State, View } from "./state";

const ONLY_LIVE = "Of sizes and ages, only live memory is known: choose other rows, and remove such filters.";

export function makeChoices(scene: Scene): HTMLElement[] {
  const { host } = scene;
  const { state } = host;
  const reset: Partial<State> = { zoom: [] };
  return [
    choice<Value>(
      "Measure",
      [
        ["live", "Live"],
        ["allocated", "Allocated"],
        ["freed", "Freed"],
      ],
      state.value,
      (value) => host.change({ value, ...reset }),
      (value) => lackOfValue(scene.whole, value) || (value !== "live" && needsLive(state, state.table) ? ONLY_LIVE : ""),
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
  ];
}
