// SPDX-License-Identifier: Apache-2.0
//
// The parts of a profile that threads, sizes and ages have: as a profile of its own, which every view can draw, and as
// rows. One pass over the columns for each.
import { ageText, Class, Filter, isFiltered, sizeText } from "./classes";
import { add, columnsOf, noMeasure, Paths, Profile, Value } from "./profile";
import { isNothing, newRow, Row } from "./rows";

const MEASURES = ["bytes", "objects", "samples", "variance"] as const;
const VALUES = ["live", "allocated"] as const; // those that have columns

type Column = `${(typeof VALUES)[number]}_${(typeof MEASURES)[number]}`;

// Columns of the same length. Threads and Blocks are two kinds of them.
interface Shares {
  path: number[];
  thread: number[];
  size?: number[];
  age?: number[];
  columns: { [name in Column]?: number[] };
}

// The shares that tell apart what is asked for; null: the profile has none. Threads know what was allocated, blocks do
// not.
function sharesOf(profile: Profile, tellsBlocks: boolean): Shares | null {
  const shares = tellsBlocks ? profile.blocks : profile.threads;
  return shares === undefined ? null : { ...shares, columns: shares as unknown as Shares["columns"] };
}

// Whether a share is in the filter.
function testOf(profile: Profile, shares: Shares, filter: Filter): (share: number) => boolean {
  const { size, age } = filter;
  const thread = filter.thread === "" ? null : profile.texts.indexOf(filter.thread);
  return (share) =>
    (thread === null || shares.thread[share] === thread) &&
    (size === null || shares.size?.[share] === size) &&
    (age === null || shares.age?.[share] === age);
}

// The same call paths with what is in the filter. With a size or an age, what was allocated is 0: nobody knows it.
export function filterProfile(profile: Profile, filter: Filter): Profile {
  if (!isFiltered(filter)) return profile;
  const shares = sharesOf(profile, filter.size !== null || filter.age !== null);
  const count = profile.paths.stack.length;
  const paths: Paths = { ...profile.paths };
  const sums: { from: number[]; to: number[] }[] = [];
  for (const value of VALUES) {
    for (const measure of MEASURES) {
      const to = new Array<number>(count).fill(0);
      paths[`${value}_${measure}`] = to;
      const from = shares?.columns[`${value}_${measure}`];
      if (from !== undefined) sums.push({ from, to });
    }
  }
  if (shares !== null) {
    const isIn = testOf(profile, shares, filter);
    for (let share = 0; share < shares.path.length; share++) {
      if (!isIn(share)) continue;
      const path = shares.path[share];
      for (const { from, to } of sums) to[path] += from[share];
    }
  }
  return { ...profile, paths };
}

// One row for each thread, size or age. A row's number is the number of the thread's name, the size or the age.
export function rowsByClass(profile: Profile, by: Class, value: Value, filter: Filter, keeps: (path: number) => boolean): Row[] {
  const shares = sharesOf(profile, by !== "thread" || filter.size !== null || filter.age !== null);
  const keys = by === "thread" ? shares?.thread : by === "size" ? shares?.size : shares?.age;
  if (shares === null || keys === undefined) return [];
  if (value !== "live" && shares.columns.allocated_bytes === undefined) return [];
  const { bytes, objects, samples, variance } = columnsOf(shares.columns as Required<Shares["columns"]>, value);
  const isIn = testOf(profile, shares, filter);
  const rows = new Map<number, Row>();
  const part = noMeasure();
  for (let share = 0; share < keys.length; share++) {
    if (!keeps(shares.path[share]) || !isIn(share)) continue;
    let row = rows.get(keys[share]);
    if (row === undefined) {
      row = newRow(nameOf(profile, by, keys[share]), keys[share]);
      rows.set(keys[share], row);
    }
    part.bytes = bytes[share];
    part.objects = objects[share];
    part.samples = samples[share];
    part.variance = variance[share];
    add(row.self, part);
  }
  return [...rows.values()].filter((row) => !isNothing(row.self)).map((row) => ({ ...row, total: row.self }));
}

function nameOf(profile: Profile, by: Class, key: number): string {
  return by === "thread" ? profile.texts[key] : by === "size" ? sizeText(key) : ageText(key);
}
