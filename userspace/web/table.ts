// SPDX-License-Identifier: Apache-2.0
//
// A sortable table with figures. Only the first rows are in the document: nobody reads ten thousand.
import { make } from "./dom";

export interface Column<T> {
  key: string;
  title: string;
  isNumber: boolean;
  text(row: T): string;
  order(row: T): number | string;
  hint?(row: T): string;
  share?(row: T): number; // 0 to 1: a bar behind the text
  picture?(row: T): Node | null; // before the text
}

export interface Sorting {
  key: string;
  isAscending: boolean;
}

const MOST_ROWS = 300;

export function sortRows<T>(rows: T[], columns: Column<T>[], sorting: Sorting): T[] {
  const column = columns.find((one) => one.key === sorting.key) ?? columns[0];
  const sign = sorting.isAscending ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [first, second] = [column.order(a), column.order(b)];
    return first < second ? -sign : first > second ? sign : 0;
  });
}

export function makeTable<T>(
  rows: T[],
  columns: Column<T>[],
  sorting: Sorting,
  sort: ((sorting: Sorting) => void) | null, // null: without a head
  choose: (row: T) => void,
  keyOf: (row: T) => string = () => "", // tells the row apart from all others of the page, for the focus
): HTMLElement {
  const head = make("tr");
  for (const column of columns) {
    const isSorted = column.key === sorting.key;
    head.append(
      make(
        "th",
        {
          class: column.isNumber ? "number" : "",
          "aria-sort": !isSorted ? "none" : sorting.isAscending ? "ascending" : "descending",
        },
        make(
          "button",
          {
            type: "button",
            "data-column": column.key,
            click: () => sort?.({ key: column.key, isAscending: isSorted ? !sorting.isAscending : !column.isNumber }),
          },
          column.title + (isSorted ? (sorting.isAscending ? " ▲" : " ▼") : ""),
        ),
      ),
    );
  }
  const body = make("tbody");
  for (const row of sortRows(rows, columns, sorting).slice(0, MOST_ROWS)) {
    const line = make("tr", {
      tabindex: 0,
      "data-row": keyOf(row) || false,
      click: () => choose(row),
      keydown: (event) => {
        if ((event as KeyboardEvent).key === "Enter") choose(row);
      },
    });
    for (const column of columns) {
      const text = column.text(row);
      const cell = make("td", { class: column.isNumber ? "number" : "name", title: column.hint?.(row) ?? text }, text);
      const picture = column.picture?.(row) ?? null;
      if (picture !== null) cell.prepend(picture);
      const share = column.share?.(row) ?? 0;
      if (share > 0) {
        cell.classList.add("bar");
        cell.style.setProperty("--share", `${Math.min(100, share * 100)}%`);
      }
      line.append(cell);
    }
    body.append(line);
  }
  const rest = rows.length - MOST_ROWS;
  const table = make("table", { class: "rows" }, ...(sort === null ? [] : [make("thead", {}, head)]), body);
  return rest > 0 ? make("div", {}, table, make("p", { class: "more" }, `and ${rest} more; search or filter for them`)) : table;
}
