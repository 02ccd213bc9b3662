// SPDX-License-Identifier: Apache-2.0
//
// The buttons that choose what is shown.
import { lackOfAllocated } from "./classes";
import { choice, make } from "./dom";
import { By } from "./names";
import { Unit, Value } from "./profile";
import { Scene } from "./scene";
import { State, View } from "./state";

export function makeChoices(scene: Scene): HTMLElement[] {
  const { host } = scene;
  const { state } = host;
  const reset: Partial<State> = { zoom: [] };
  return [
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
      (value) => (value === "allocated" ? lackOfAllocated(scene.profile, state, state.table) : ""),
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
