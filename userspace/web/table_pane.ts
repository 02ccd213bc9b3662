// SPDX-License-Identifier: Apache-2.0
//
// The table of a profile: sums by function, line, path, library, thread, size or age.
import { relativeOrder, relativeText } from "./changes";
import { choice } from "./choice";
import { Class, CLASSES, lackOf } from "./classes";
import { make } from "./dom";
import { filterByClass, keyOf } from "./filters";
import * as format from "./format";
import { eachPath } from "./names";
import { Keeps, total, Unit } from "./profile";
import { pathText, Row, rowsByName, rowsByPath } from "./rows";
import { compile, emptinessOf, Scene } from "./scene";
import { rowsByClass } from "./shares";
import { Table } from "./state";
import { Column, makeTable } from "./table";
import { childrenOf, makeTree, wholePath } from "./tree";

export const MOST_NAMES = 6; // of a path in its row

const TABLES: readonly [Table, string][] = [
  ["function", "Functions"],
  ["line", "Lines"],
  ["path", "Paths"],
  ["library", "Libraries"],
  ["thread", "Threads"],
  ["size", "Sizes"],
  ["age", "Ages"],
];
const HEADINGS: { [table in Table]: string } = {
  function: "Name",
  line: "Name",
  path: "Call path",
  library: "Name",
  thread: "Thread",
  size: "Size",
  age: "Age",
};

export function classOf(table: Table): Class | null {
  return CLASSES.find((one) => one === table) ?? null;
}

// `inside`: the paths to sum.
export function drawTable(place: HTMLElement, scene: Scene, inside: Keeps): void {
  const { profile, host, tableNames } = scene;
  const { state } = host;
  const isPath = state.table === "path";
  const by = classOf(state.table);
  const sums = isPath ? rowsByPath : rowsByName;
  const rows =
    by !== null ? rowsByClass(profile, by, state.value, state, inside) : sums(profile, tableNames, state.value, inside);
  const nameOf = (row: Row): string => (isPath ? pathText(profile, tableNames, row.number, MOST_NAMES) : row.name);
  const expression = state.search === "" ? null : compile(state.search);
  const shown = expression === null ? rows : rows.filter((row) => expression.test(nameOf(row)));
  place.append(
    choice<Table>("Rows", TABLES, state.table, (table) => host.change({ table }), (table) => lackOfTable(scene, table)),
    make(
      "div",
      { class: "scroll sums" },
      makeTable(
        shown,
        columnsOf(scene, nameOf),
        { key: state.sort, isAscending: state.ascending },
        (sorting) => host.change({ sort: sorting.key, ascending: sorting.isAscending }),
        (row) => (isPath ? showPath(scene, row) : by !== null ? filterByClass(scene, by, row) : filterBy(scene, row)),
        (row) => (isPath ? keyOf("path", row.number) : keyOf(by ?? "focus", by === null || by === "thread" ? row.name : row.number)),
      ),
      ...(shown.length > 0 ? [] : [make("p", { class: "empty" }, emptyText(scene, rows.length > 0))]),
    ),
  );
}

function emptyText(scene: Scene, isSearched: boolean): string {
  return emptinessOf(scene) || (isSearched ? "The search matches no row." : "No row has such memory.");
}

// Why this table cannot be shown, as a sentence; "": it can be.
function lackOfTable(scene: Scene, table: Table): string {
  const by = classOf(table);
  if (by === null) return "";
  const isOther = by !== "thread" && scene.host.state.value !== "live";
  return lackOf(scene.whole, by) || (isOther ? "Of sizes and ages, only live memory is known: choose Live." : "");
}

function columnsOf(scene: Scene, nameOf: (row: Row) => string): Column<Row>[] {
  const { profile, keeps } = scene;
  const { table, unit, value } = scene.host.state;
  const isDifference = profile.subject.is_difference;
  const hasTotal = table !== "path" && classOf(table) === null;
  const whole = Math.abs(total(profile, value, keeps)[unit]) || 1;
  const figures = (key: "self" | "total", title: string): Column<Row> => ({
    key,
    title,
    isNumber: true,
    text: (row) => format.signed(row[key][unit], unit, isDifference) + (unit === "bytes" && format.isNoise(row[key]) ? " ~" : ""),
    order: (row) => row[key][unit],
    hint: (row) =>
      `${format.signed(row[key].bytes, "bytes", isDifference)} ± ${format.bytes(format.error(row[key]))}, ` +
      `${format.plural(row[key].samples, "sample")}` +
      (format.isNoise(row[key]) ? "; less than twice its standard error: may be noise" : ""),
    share: (row) => Math.abs(row[key][unit]) / whole,
  });
  return [
    figures("self", hasTotal ? "Self" : unit === "objects" ? "Objects" : "Bytes"),
    ...(hasTotal ? [figures("total", "Total")] : []),
    ...(isDifference ? [relative(unit)] : []),
    { key: "samples", title: "Samples", isNumber: true, text: (row) => format.count(row.total.samples), order: (row) => row.total.samples },
    {
      key: "name",
      title: HEADINGS[table],
      isNumber: false,
      text: nameOf,
      hint: table === "path" ? (row) => pathText(profile, scene.tableNames, row.number) : nameOf,
      order: table === "size" || table === "age" ? (row) => row.number : nameOf,
    },
  ];
}

// The change of the total as a share of what was there before.
function relative(unit: Unit): Column<Row> {
  return {
    key: "percent",
    title: "%",
    isNumber: true,
    text: (row) => relativeText(row.before, row.total, unit),
    order: (row) => relativeOrder(row.before, row.total, unit),
    hint: (row) => `${format.figure(row.before[unit], unit)} before, ${format.figure(row.before[unit] + row.total[unit], unit)} now`,
  };
}

// Keeps only paths through the row's function, line or library; a second choice removes the filter.
function filterBy(scene: Scene, row: Row): void {
  scene.host.change({ focus: row.name === scene.host.state.focus ? "" : row.name, zoom: [] });
}

// Shows the row's path from main on.
export function showPath(scene: Scene, row: Row): void {
  const { profile, names, host, keeps } = scene;
  let path: number[] = [];
  eachPath(profile, names, (number, here, _frames, count) => {
    if (number === row.number) path = Array.from(here.subarray(0, count));
  });
  const tree = makeTree(profile, names, { ...host.state, direction: "inwards", cut: wholePath, keeps });
  const zoom: number[] = [];
  let node = 0;
  for (const name of path) {
    const position = childrenOf(tree, node).findIndex((child) => tree.name[child] === name);
    if (position < 0) break;
    zoom.push(position);
    node = childrenOf(tree, node)[position];
  }
  host.change({ view: "icicle", zoom });
}
