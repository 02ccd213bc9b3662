// SPDX-License-Identifier: Apache-2.0
//
// A profile as the page gets it (userspace/report/page_data.h), and what the views ask of it.
import { Part } from "./coverage";

export interface Subject {
  name: string;
  pid: number | null;
  period: number; // mean bytes between samples; 1: every allocation is recorded
  resident_bytes: number | null;
  warnings: string[];
  is_difference: boolean;
  has_allocated: boolean; // else only what is live is known
  time?: number; // of the profile, in seconds since 1970; absent: unknown
  // How the resident memory divides; absent: unknown.
  coverage?: Part[];
}

// How each path divides. A path has its number in Paths, a thread the number of a text.
export interface Threads {
  path: number[];
  thread: number[];
  live_bytes: number[];
  live_objects: number[];
  live_samples: number[];
  live_variance: number[];
  allocated_bytes: number[];
  allocated_objects: number[];
  allocated_samples: number[];
  allocated_variance: number[];
}

// Live blocks of one size and a range of ages.
export interface Blocks {
  path: number[];
  thread: number[];
  size: number[]; // bytes of each
  age: number[]; // where the range begins, in seconds (userspace/profile/ages.h); -1: unknown
  live_bytes: number[];
  live_objects: number[];
  live_samples: number[];
  live_variance: number[];
}

export interface Frames {
  function: number[]; // numbers of texts, as in the other columns
  short: number[];
  file: number[];
  line: number[];
  library: number[];
  flags: number[];
}

export interface Paths {
  stack: number[]; // number of the innermost entry of `stacks`; -1: the path is unknown
  truncated: number[];
  live_bytes: number[];
  live_objects: number[];
  live_samples: number[];
  live_variance: number[];
  allocated_bytes: number[];
  allocated_objects: number[];
  allocated_samples: number[];
  allocated_variance: number[];
  // Of a difference: what was live before. It has unchanged paths too.
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
export type Value = "live" | "allocated";
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

// What a path held before the difference; of another profile: nothing.
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

export function measureOf(profile: Profile, path: number, value: Value): Measure {
  const paths = profile.paths;
  return value === "live"
    ? {
        bytes: paths.live_bytes[path],
        objects: paths.live_objects[path],
        samples: paths.live_samples[path],
        variance: paths.live_variance[path],
      }
    : {
        bytes: paths.allocated_bytes[path],
        objects: paths.allocated_objects[path],
        samples: paths.allocated_samples[path],
        variance: paths.allocated_variance[path],
      };
}

// The estimates of all paths.
export function columnOf(profile: Profile, value: Value, unit: Unit): number[] {
  const { paths } = profile;
  if (value === "live") return unit === "bytes" ? paths.live_bytes : paths.live_objects;
  return unit === "bytes" ? paths.allocated_bytes : paths.allocated_objects;
}

export function total(profile: Profile, value: Value, keeps: Keeps = () => true): Measure {
  const sum = noMeasure();
  for (let path = 0; path < profile.paths.stack.length; path++) if (keeps(path)) add(sum, measureOf(profile, path, value));
  return sum;
}

export function fileName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
