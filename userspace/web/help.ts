// SPDX-License-Identifier: Apache-2.0
//
// What the keys do, and what the marks mean.
import { Part } from "./coverage";
import { make } from "./dom";

const KEYS: [string, string][] = [
  ["/", "search"],
  ["1 2 3", "from main, bottom-up, butterfly"],
  ["Tab", "to the next group of buttons, field, graph or row"],
  ["← →", "in a group of buttons: to its other buttons; on the border between graph and table: move it, and Enter puts it back"],
  ["↑ ↓ ← →", "in a flame graph: to the largest box above or below, to the neighbours; an outline shows where you are"],
  ["← →", "in the timeline: an earlier or later moment; with Shift a range"],
  ["Enter", "on a box: zoom; in a butterfly: its callers and callees. On a row: filter, and back. On a filter: remove it"],
  ["c C", "copy the name, or the call path, of the box or row that the mouse or the keyboard is on"],
  ["Esc", "take the last search, zoom or filter back; then to the processes"],
  ["?", "this help"],
];

const MARKS: [string, string][] = [
  ["~", "less than twice its standard error: may be noise"],
  ["grey", "in a flame graph: boxes that are too narrow to be seen, as deep as they go; zoom for them"],
  ["italics", "an inlined function; its box has a bar at its left"],
  ["1 2 3", "in the timeline: the layers of the legend; a click on a number, or on its entry, shows this call path alone, and a second one all; the line is the resident memory, the dashed one the limit"],
  ["▸ ■ ▾", "in the timeline: a process began, ended; a dump or a mark"],
  ["bar", "on top: how the resident memory divides; patterns and order are those of the list below it"],
  ["%", "in a difference: the change relative to what was live before"],
  ["orange, blue", "in a difference: what grew, what shrank; the figures have signs"],
];

export class Help {
  readonly element = make("dialog", { class: "help", "aria-label": "Help" });
  private readonly memory = make("section", {});

  constructor() {
    const close = make("button", { type: "button", class: "back", click: () => this.element.close() }, "Close");
    this.element.append(
      make("h1", {}, "Keys"),
      makeList(KEYS, "kbd"),
      make("h1", {}, "Marks"),
      makeList(MARKS, "em"),
      this.memory,
      make("p", {}, "The address holds what is shown, so a link shows the same picture."),
      close,
    );
  }

  // `parts`: of the resident memory; none: how it divides is not known.
  explain(parts: Part[]): void {
    const entries = parts.map(({ name, note }): [string, string] => [name, note]);
    this.memory.replaceChildren(...(parts.length === 0 ? [] : [make("h1", {}, "Resident memory"), makeList(entries, "em")]));
  }

  open(): void {
    if (!this.element.open) this.element.showModal();
  }
}

function makeList(entries: [string, string][], tag: "kbd" | "em"): HTMLElement {
  const list = make("dl", {});
  for (const [name, text] of entries) list.append(make("dt", {}, make(tag, {}, name)), make("dd", {}, text));
  return list;
}
