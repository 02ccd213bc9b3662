// SPDX-License-Identifier: Apache-2.0
//
// Keeps the focus of the keyboard while a table (table.ts) is replaced by one with newer rows.
import { selectorsOf } from "./dom";

export interface KeptFocus {
  // Focuses the same row or head of a column in the table that is there now. If the row is gone, focuses the one that
  // is in its place.
  restore(): void;
}

const NOTHING: KeptFocus = { restore: () => undefined };

// Call it before the table in `place` is replaced.
export function focusOf(place: HTMLElement): KeptFocus {
  const focused = document.activeElement;
  if (!(focused instanceof HTMLElement) || !place.contains(focused)) return NOTHING;
  const key = focused.dataset.row ?? "";
  if (key === "") {
    const [selector] = selectorsOf(focused);
    return selector === undefined ? NOTHING : { restore: () => place.querySelector<HTMLElement>(selector)?.focus({ preventScroll: true }) };
  }
  const index = rowsIn(place).indexOf(focused);
  return {
    restore: () => {
      const rows = rowsIn(place);
      const row = rows.find((one) => one.dataset.row === key) ?? rows[Math.min(index, rows.length - 1)];
      row?.focus({ preventScroll: true });
    },
  };
}

function rowsIn(place: HTMLElement): HTMLElement[] {
  return [...place.querySelectorAll<HTMLElement>("tbody tr")];
}
