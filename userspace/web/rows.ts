// SPDX-License-Identifier: Apache-2.0
//
// Sums by name: what a function allocates itself, and what it has allocated with the functions that it has called.
import { eachPath, framesOf, Names, OUTER_FRAMES_MISSING, STEP, UNKNOWN_PATH } from "./names";
import { add, addAmount, Amount, beforeOf, Measure, measureOf, noMeasure, Profile, Value } from "./profile";

export interface Row {
  name: string;
  number: number; // of the name, or of a path; -1: unknown call paths
  self: Measure;
  total: Measure;
  before: Amount; // in a difference: what the total was before
}

export function isNothing(measure: Measure): boolean {
  return measure.samples === 0 && measure.bytes === 0;
}

export function newRow(name: string, number: number): Row {
  return { name, number, self: noMeasure(), total: noMeasure(), before: { bytes: 0, objects: 0 } };
}

export function rowsByName(profile: Profile, names: Names, value: Value, keeps: (path: number) => boolean): Row[] {
  const rows: Row[] = names.texts.map((name, number) => newRow(name, number));
  const unknown = newRow(UNKNOWN_PATH, -1);
  const last = new Int32Array(names.texts.length).fill(-1); // the last path that each name was counted for
  eachPath(profile, names, (path, here, _frames, count) => {
    if (!keeps(path)) return;
    const measure = measureOf(profile, path, value);
    // The percentages of a difference need what is unchanged too.
    if (isNothing(measure) && !profile.subject.is_difference) return;
    const before = beforeOf(profile, path);
    if (count === 0) {
      add(unknown.self, measure);
      add(unknown.total, measure);
      addAmount(unknown.before, before);
      return;
    }
    add(rows[here[count - 1]].self, measure);
    for (let i = 0; i < count; i++) {
      if (last[here[i]] === path) continue; // recursion
      last[here[i]] = path;
      add(rows[here[i]].total, measure);
      addAmount(rows[here[i]].before, before);
    }
  });
  return rows.concat([unknown]).filter((row) => !isNothing(row.total));
}

export function rowsByPath(profile: Profile, names: Names, value: Value, keeps: (path: number) => boolean): Row[] {
  const rows = new Map<string, Row>();
  eachPath(profile, names, (path, here, _frames, count) => {
    if (!keeps(path)) return;
    const measure = measureOf(profile, path, value);
    if (isNothing(measure) && !profile.subject.is_difference) return;
    const key = here.subarray(0, count).join(" ");
    let row = rows.get(key);
    if (row === undefined) {
      row = newRow("", path);
      rows.set(key, row);
    }
    add(row.self, measure);
    addAmount(row.before, beforeOf(profile, path));
  });
  return [...rows.values()].filter((row) => !isNothing(row.self)).map((row) => ({ ...row, total: row.self }));
}

// A path in one line, the innermost function first. `most`: at most this many functions of the path.
export function pathText(profile: Profile, names: Names, path: number, most = Infinity): string {
  const frames = framesOf(profile, names, path);
  if (frames.length === 0) return UNKNOWN_PATH;
  const texts = frames.map((frame) => names.texts[names.ofFrame[frame]]).reverse();
  return texts.length > most ? [...texts.slice(0, most), "…"].join(STEP) : texts.join(STEP);
}

// Whether a path has this text. The history does not know which paths are cut, so it does not mark them.
export function hasPathText(profile: Profile, names: Names, path: number, text: string): boolean {
  const own = pathText(profile, names, path);
  return own === text || own === `${text}${STEP}${OUTER_FRAMES_MISSING}`;
}
