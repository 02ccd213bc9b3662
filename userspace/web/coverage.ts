// SPDX-License-Identifier: Apache-2.0
//
// How the resident memory of a process divides: a bar, and a list with the same parts in the same order. Each part has a
// pattern besides its colour.
import { make } from "./dom";
import * as format from "./format";

export interface Part {
  name: string;
  bytes: number;
  note: string; // what it means
}

const PATTERNS = 7; // style.css

export function makeCoverage(parts: Part[]): HTMLElement {
  const whole = parts.reduce((sum, part) => sum + part.bytes, 0);
  const bar = make("div", { class: "memory-bar", "aria-hidden": "true" });
  const list = make("ul", {});
  parts.forEach((part, i) => {
    const pattern = `pattern pattern-${i % PATTERNS}`;
    const percent = format.percent(part.bytes, whole);
    const title = `${part.name} ${format.bytes(part.bytes)}, ${percent} of the resident memory: ${part.note}`;
    if (part.bytes > 0) {
      const piece = make("span", { class: pattern, title });
      piece.style.flexGrow = String(part.bytes / whole);
      bar.append(piece);
    }
    list.append(
      make(
        "li",
        { title },
        make("span", { class: `sample ${pattern}`, "aria-hidden": "true" }),
        `${part.name} `,
        make("strong", {}, format.bytes(part.bytes)),
        ` ${percent}`,
        make("span", { class: "unseen" }, `: ${part.note}`),
      ),
    );
  });
  return make("section", { class: "memory", "aria-label": "How the resident memory divides" }, bar, list);
}

// A note as high as the bar with its list, for moments at which the division is not known.
export function makeUnknownCoverage(): HTMLElement {
  return make("p", { class: "memory none" }, "How the resident memory divides is not known of this moment.");
}
