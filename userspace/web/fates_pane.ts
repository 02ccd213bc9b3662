// SPDX-License-Identifier: Apache-2.0
//
// The paths of a difference that held nothing before, and the paths that hold nothing any more.
import { fateOf } from "./changes";
import { make } from "./dom";
import { keyOf } from "./filters";
import * as format from "./format";
import { nameFrames } from "./names";
import { Keeps } from "./profile";
import { pathText, Row, rowsByPath } from "./rows";
import { compile, Scene } from "./scene";
import { Column, makeTable } from "./table";
import { MOST_NAMES, showPath } from "./table_pane";

export function drawFates(place: HTMLElement, scene: Scene, inside: Keeps): void {
  const { profile } = scene;
  const { search, table, value, unit, full } = scene.host.state;
  const names = table === "library" ? nameFrames(profile, "function", !full) : scene.tableNames;
  const nameOf = (row: Row): string => pathText(profile, names, row.number, MOST_NAMES);
  const expression = search === "" ? null : compile(search);
  const rows = rowsByPath(profile, names, value, inside).filter((row) => expression === null || expression.test(nameOf(row)));
  const pane = make("div", { class: "scroll fates", role: "group", "aria-label": "New and vanished paths" });
  for (const [fate, title] of [
    ["new", "New paths"],
    ["vanished", "Vanished paths"],
  ] as const) {
    const some = rows.filter((row) => fateOf(row.before, row.self) === fate);
    const sum = some.reduce((all, row) => all + row.self[unit], 0);
    pane.append(make("h2", {}, `${title}: ${format.count(some.length)}${some.length > 0 ? `, ${format.signed(sum, unit, true)}` : ""}`));
    if (some.length === 0) continue;
    const columns: Column<Row>[] = [
      {
        key: "change",
        title: "Change",
        isNumber: true,
        text: (row) => format.signed(row.self[unit], unit, true) + (unit === "bytes" && format.isNoise(row.self) ? " ~" : ""),
        order: (row) => Math.abs(row.self[unit]),
        share: (row) => Math.abs(row.self[unit] / (sum || 1)),
      },
      { key: "name", title: "Call path", isNumber: false, text: nameOf, order: nameOf },
    ];
    const table = makeTable(some, columns, { key: "change", isAscending: false }, null, (row) => showPath(scene, row), (row) => keyOf("path", `${fate} ${row.number}`));
    table.classList.add(fate);
    pane.append(table);
  }
  place.append(pane);
}
