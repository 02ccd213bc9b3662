// SPDX-License-Identifier: Apache-2.0
//
// The names that a view sums by: one number for each name, and for each frame the number of its name.
import { fileName, PLUMBING, Profile, START } from "./profile";

export type By = "function" | "line" | "library";

export interface Names {
  texts: string[];
  ofFrame: Int32Array;
  isFolded: Uint8Array; // of each frame: it is left out unless its path has nothing else
}

export const UNKNOWN_PATH = "[unknown call path]";
export const OUTER_FRAMES_MISSING = "[outer frames missing]"; // the root of cut paths (userspace/profile/source_frames.h)
export const STEP = " ← "; // from a function to its caller, in the text of a path

export function nameFrames(profile: Profile, by: By, foldsFrames: boolean): Names {
  const { frames, texts } = profile;
  const count = frames.function.length;
  const names: Names = { texts: [], ofFrame: new Int32Array(count), isFolded: new Uint8Array(count) };
  const numbers = new Map<string, number>();
  for (let frame = 0; frame < count; frame++) {
    const text = nameOf(profile, frame, by, foldsFrames);
    let number = numbers.get(text);
    if (number === undefined) {
      number = names.texts.length;
      names.texts.push(text);
      numbers.set(text, number);
    }
    names.ofFrame[frame] = number;
    names.isFolded[frame] = foldsFrames && (frames.flags[frame] & (PLUMBING | START)) !== 0 ? 1 : 0;
  }
  return names;

  function nameOf(of: Profile, frame: number, kind: By, isShort: boolean): string {
    if (kind === "library") return fileName(texts[of.frames.library[frame]]) || "[no file]";
    const name = texts[isShort ? of.frames.short[frame] : of.frames.function[frame]];
    if (kind === "function" || of.frames.file[frame] === 0) return name;
    return `${name} ${fileName(texts[of.frames.file[frame]])}:${of.frames.line[frame]}`;
  }
}

// The frames of a path that a view shows, the outermost first.
export function framesOf(profile: Profile, names: Names, path: number): number[] {
  const all: number[] = [];
  for (let at = profile.paths.stack[path]; at >= 0; at = profile.stacks.parent[at]) all.push(profile.stacks.frame[at]);
  all.reverse();
  const kept = all.filter((frame) => names.isFolded[frame] === 0);
  return kept.length > 0 ? kept : all;
}

// Calls `use` for each path with its names, the outermost first. The array is used again.
export function eachPath(
  profile: Profile,
  names: Names,
  use: (path: number, names: Int32Array, frames: Int32Array, count: number) => void,
): void {
  let here = new Int32Array(256);
  let frames = new Int32Array(256);
  const { parent, frame } = profile.stacks;
  for (let path = 0; path < profile.paths.stack.length; path++) {
    let depth = 0;
    let folded = 0;
    for (let at = profile.paths.stack[path]; at >= 0; at = parent[at]) {
      depth++;
      folded += names.isFolded[frame[at]];
    }
    const keepsAll = folded === depth;
    const count = keepsAll ? depth : depth - folded;
    if (count > here.length) {
      here = new Int32Array(2 * count);
      frames = new Int32Array(2 * count);
    }
    let next = count;
    for (let at = profile.paths.stack[path]; at >= 0; at = parent[at]) {
      if (!keepsAll && names.isFolded[frame[at]] === 1) continue;
      frames[--next] = frame[at];
      here[next] = names.ofFrame[frame[at]];
    }
    use(path, here, frames, count);
  }
}
