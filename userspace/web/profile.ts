// SPDX-License-Identifier: Apache-2.0
//
// A profile as the page gets it (userspace/views/page_data.h), and what the views ask of it.
import { Part } from "./coverage";

export interface Subject {
  name: string;
  pid: number | null;
  period: number; // mean bytes between samples; 1: every allocation is recorded
  several_periods?: boolean; // some samples were taken at other intervals
  allocated_bytes?: number; // by the whole process in the range of a difference, freed or not; absent: unknown
  resident_bytes: number | null;
  warnings: string[];
  is_difference: boolean;
  has_allocated: boolean; // of its call paths; else only what is live is known
  time?: number; // of the profile, in seconds since 1970; absent: unknown
  // How the resident memory divides; absent: unknown.
  coverage?: Part[];
}

// The sums of what is live.
interface LiveSums {
  live_bytes: number[];
  live_objects: number[];
  live_samples: number[];
  live_variance: number[];
}

// The sums of what is live, and of what was allocated.
interface Sums extends LiveSums {
  allocated_bytes: number[];
  allocated_objects: number[];
  allocated_samples: number[];
  allocated_variance: number[];
}

// How each path divides. A path has its number in Paths, a thread the number of a text.
export interface Threads extends Sums {
  path: number[];
  thread: number[];
}

// Live blocks of one size and a range of ages.
export interface Blocks extends LiveSums {
  path: number[];
  thread: number[];
  size: number[]; // bytes of each
  age: number[]; // where the range begins, in seconds (userspace/profile/ages.h); -1: unknown
}

export interface Frames {
  function: number[]; // numbers of texts, as in the other columns
  short: number[];
  file: number[];
  line: number[];
  library: number[];
  flags: number[];
}

export interface Paths extends Sums {
  stack: number[]; // number of the innermost entry of `stacks`; -1: the path is unknown
  truncated: number[];
  // A difference has what was live before, also of paths that have not changed.
  before_bytes?: number[];
  before_objects?: number[];
}

export interface Profile {
  schema_version: number;
  subject: Subject;
  texts: string[];
  frames: Frames;
  stacks: { parent: number[]; frame: number[] }; // a parent comes before its children; -1: none
  paths: Paths;
  threads?: Threads; // absent: the profile does not tell them apart
  blocks?: Blocks; // only of a process that the daemon records, and of dumps with blocks
}

// Bits of Frames.flags.
export const INLINE = 1;
export const HAS_SYMBOL = 2;
export const PLUMBING = 4;
export const START = 8;

// Whether a path is shown.
export type Keeps = (path: number) => boolean;
export type Value = "live" | "allocated" | "freed";
export type Unit = "bytes" | "objects";

export interface Measure {
  bytes: number;
  objects: number;
  samples: number;
  variance: number;
}

export function noMeasure(): Measure {
  return { bytes: 0, objects: 0, samples: 0, variance: 0 };
}

export interface Amount {
  bytes: number;
  objects: number;
}

// What a path held before the difference; nothing if the profile is not a difference.
export function beforeOf(profile: Profile, path: number): Amount {
  const { before_bytes: bytes, before_objects: objects } = profile.paths;
  return { bytes: bytes?.[path] ?? 0, objects: objects?.[path] ?? 0 };
}

export function addAmount(to: Amount, other: Amount): void {
  to.bytes += other.bytes;
  to.objects += other.objects;
}

export function totalBefore(profile: Profile, keeps: Keeps): Amount {
  const sum = { bytes: 0, objects: 0 };
  for (let path = 0; path < profile.paths.stack.length; path++) if (keeps(path)) addAmount(sum, beforeOf(profile, path));
  return sum;
}

export function add(to: Measure, other: Measure): void {
  to.bytes += other.bytes;
  to.objects += other.objects;
  to.samples += other.samples;
  to.variance += other.variance;
}

// One measure of all paths, or of all their threads.
export type Columns = { [name in keyof Measure]: number[] };
type Measured = Pick<Paths, "live_bytes" | "live_objects" | "live_samples" | "live_variance" | "allocated_bytes" | "allocated_objects" | "allocated_samples" | "allocated_variance">;

// Estimates are rounded to tenths, so a difference of two that should be 0 may be as large as this.
const ROUNDING = 0.15;

const freed = new WeakMap<Measured, Columns>();

export function columnsOf(from: Measured, value: Value): Columns {
  if (value === "live") return { bytes: from.live_bytes, objects: from.live_objects, samples: from.live_samples, variance: from.live_variance };
  if (value === "allocated") {
    return { bytes: from.allocated_bytes, objects: from.allocated_objects, samples: from.allocated_samples, variance: from.allocated_variance };
  }
  let known = freed.get(from);
  if (known === undefined) {
    known = freedOf(columnsOf(from, "allocated"), columnsOf(from, "live"));
    freed.set(from, known);
  }
  return known;
}

// Like FreedOf (userspace/report/measure.h).
function freedOf(allocated: Columns, live: Columns): Columns {
  const less = (name: keyof Measure, least: number): number[] =>
    allocated[name].map((value, i) => (value - live[name][i] > least ? value - live[name][i] : 0));
  return { bytes: less("bytes", ROUNDING), objects: less("objects", ROUNDING), samples: less("samples", 0), variance: less("variance", 0) };
}

export function measureOf(profile: Profile, path: number, value: Value): Measure {
  const { bytes, objects, samples, variance } = columnsOf(profile.paths, value);
  return { bytes: bytes[path], objects: objects[path], samples: samples[path], variance: variance[path] };
}

// Why the paths of the profile do not have this measure, as a sentence; "": they have.
export function lackOfValue(profile: Profile, value: Value): string {
  if (value === "live") return "";
  if (!profile.subject.has_allocated) return "What was allocated and freed is known of whole processes at most, not by call path.";
  return profile.subject.is_difference ? "A difference shows live memory only." : "";
}

export function total(profile: Profile, value: Value, keeps: Keeps = () => true): Measure {
  const sum = noMeasure();
  for (let path = 0; path < profile.paths.stack.length; path++) if (keeps(path)) add(sum, measureOf(profile, path, value));
  return sum;
}

export function fileName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
