// SPDX-License-Identifier: Apache-2.0
//
// What divides memory besides call paths: threads, sizes and ages. The names are those of `heaptap report --by`
// (userspace/report/root_names.h).
import { Profile } from "./profile";

export type Class = "thread" | "size" | "age";
export const CLASSES: readonly Class[] = ["thread", "size", "age"];

// Keeps only memory of this thread, size and age. The three combine.
export interface Filter {
  thread: string; // its name; "": all
  size: number | null; // bytes of each block; null: all
  age: number | null; // one of AGES, or UNKNOWN_AGE; null: all
}

export const UNKNOWN_AGE = -1;
// Where the ranges begin, in seconds (userspace/profile/ages.h). The last one has no end.
export const AGES = [0, 1, 10, 60, 600, 3600, 21600, 86400, 604800];

const UNITS: readonly [number, string][] = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

function secondsText(seconds: number): string {
  const [length, unit] = UNITS.find(([one]) => seconds % one === 0) ?? [1, "s"];
  return `${seconds / length} ${unit}`;
}

export function sizeText(bytes: number): string {
  return `blocks of ${bytes} bytes`;
}

export function ageText(age: number): string {
  const at = AGES.indexOf(age);
  if (at < 0) return "of unknown age";
  if (at + 1 === AGES.length) return `older than ${secondsText(age)}`;
  return at === 0 ? `younger than ${secondsText(AGES[1])}` : `${secondsText(age)} to ${secondsText(AGES[at + 1])}`;
}

export function isFiltered(filter: Filter): boolean {
  return filter.thread !== "" || filter.size !== null || filter.age !== null;
}

// Whether something is asked for that is known of live memory only.
export function needsLive(filter: Filter, table: string): boolean {
  return filter.size !== null || filter.age !== null || table === "size" || table === "age";
}

// What a profile lacks to be divided in this way, as a sentence; "": nothing.
export function lackOf(profile: Profile, by: Class): string {
  if (profile.subject.is_difference) return "A difference does not tell threads, sizes and ages apart.";
  if (by === "thread") return profile.threads === undefined ? "This profile does not tell threads apart." : "";
  if (profile.blocks === undefined) {
    return "This profile does not have the sizes and ages of blocks. A process that the daemon records has them, and a dump of heaptap dump --format blocks.";
  }
  const isKnown = by === "size" || profile.blocks.age.length === 0 || profile.blocks.age.some((age) => age !== UNKNOWN_AGE);
  return isKnown ? "" : "This profile does not have the ages of blocks.";
}

// What a profile lacks to be filtered in this way, and what to do; "": nothing.
export function lackFor(profile: Profile, filter: Filter): string {
  const needsBlocks = filter.size !== null || filter.age !== null;
  const lack = (needsBlocks ? lackOf(profile, "size") : "") || (filter.thread !== "" ? lackOf(profile, "thread") : "");
  return lack === "" ? "" : `${lack} Remove the filter to see all of it.`;
}
