// SPDX-License-Identifier: Apache-2.0
//
// The difference of the profiles of two processes.
//
// Addresses differ between processes, so paths are the same if their frames are: functions of the same names in files of
// the same names, without folders; lines may differ. That is the rule of the history (PathKey in
// userspace/history/path_names.h), so `heaptap diff PID@now PID@now` shows the same figures.
//
// The two processes share no samples: errors add up, and a change has the samples of both. A path that holds the same
// in both has not changed, as in userspace/report/changes.h.
//
// Takes linear time. The profiles stay as they are.
import { fileName, HAS_SYMBOL, Paths, Profile } from "./profile";

const MEASURES = ["live_bytes", "live_objects", "live_samples", "live_variance"] as const;
const NOTHING = ["allocated_bytes", "allocated_objects", "allocated_samples", "allocated_variance"] as const;

// A change of fewer bytes or objects is a rounding error.
const LEAST = 0.05;

// More frames than any profile has, and few enough that the product with the number of a stack is exact.
const MOST_FRAMES = 2 ** 26;

// Numbers keys in the order in which they come.
class Numbers<Key> {
  private readonly numbers = new Map<Key, number>();

  // `isNew` is called if the key is new.
  of(key: Key, isNew: () => void): number {
    const known = this.numbers.get(key);
    if (known !== undefined) return known;
    const number = this.numbers.size;
    this.numbers.set(key, number);
    isNew();
    return number;
  }
}

// What one process holds, in the columns of MEASURES, by the number of the path in the result.
type Held = { [name in (typeof MEASURES)[number]]: number[] };

class Merger {
  readonly texts: string[] = [];
  readonly frames: Profile["frames"] = { function: [], short: [], file: [], line: [], library: [], flags: [] };
  readonly stacks: Profile["stacks"] = { parent: [], frame: [] };
  readonly stack: number[] = []; // of each path
  readonly truncated: number[] = [];
  private readonly textNumbers = new Numbers<string>();
  private readonly frameNumbers = new Numbers<string>();
  private readonly stackNumbers = new Numbers<number>();
  private readonly pathNumbers = new Numbers<number>();

  constructor() {
    this.text(""); // number 0 is the empty text in every profile
  }

  add(profile: Profile): Held {
    const texts = profile.texts.map((text) => this.text(text));
    const frames = profile.frames.function.map((_, frame) => this.frame(profile, frame, texts));
    const stacks = this.addStacks(profile, frames);
    const held: Held = { live_bytes: [], live_objects: [], live_samples: [], live_variance: [] };
    profile.paths.stack.forEach((stack, path) => {
      const number = this.path(stack < 0 ? -1 : stacks[stack]);
      this.truncated[number] |= profile.paths.truncated[path];
      for (const name of MEASURES) held[name][number] = (held[name][number] ?? 0) + profile.paths[name][path];
    });
    return held;
  }

  private text(text: string): number {
    return this.textNumbers.of(text, () => this.texts.push(text));
  }

  private frame(profile: Profile, frame: number, texts: number[]): number {
    const { function: name, short, file, line, library, flags } = profile.frames;
    const path = profile.texts[library[frame]];
    // Without a symbol the name is a place in the file, which another file of that name has, too.
    const isNamed = (flags[frame] & HAS_SYMBOL) !== 0;
    const key = [isNamed ? fileName(path) : path, profile.texts[name[frame]]].join("\0");
    return this.frameNumbers.of(key, () => {
      this.frames.function.push(texts[name[frame]]);
      this.frames.short.push(texts[short[frame]]);
      this.frames.file.push(texts[file[frame]]);
      this.frames.line.push(line[frame]);
      this.frames.library.push(texts[library[frame]]);
      this.frames.flags.push(flags[frame]);
    });
  }

  // The number in the result for each entry. A parent comes before its children.
  private addStacks(profile: Profile, frames: number[]): Int32Array {
    const { parent, frame } = profile.stacks;
    const numbers = new Int32Array(parent.length);
    for (let entry = 0; entry < parent.length; entry++) {
      const above = parent[entry] < 0 ? -1 : numbers[parent[entry]];
      const own = frames[frame[entry]];
      numbers[entry] = this.stackNumbers.of((above + 1) * MOST_FRAMES + own, () => {
        this.stacks.parent.push(above);
        this.stacks.frame.push(own);
      });
    }
    return numbers;
  }

  private path(stack: number): number {
    return this.pathNumbers.of(stack, () => {
      this.stack.push(stack);
      this.truncated.push(0);
    });
  }
}

export function differenceOf(after: Profile, before: Profile): Profile {
  const merger = new Merger();
  const later = merger.add(after);
  const earlier = merger.add(before);
  const { texts, frames, stacks, stack, truncated } = merger;
  const paths: Required<Paths> = {
    ...{ stack, truncated },
    ...{ live_bytes: [], live_objects: [], live_samples: [], live_variance: [] },
    ...{ allocated_bytes: [], allocated_objects: [], allocated_samples: [], allocated_variance: [] },
    ...{ before_bytes: [], before_objects: [] },
  };
  for (let path = 0; path < stack.length; path++) {
    const of = (held: Held, name: keyof Held): number => held[name][path] ?? 0;
    const change = (name: keyof Held): number => of(later, name) - of(earlier, name);
    const isSame =
      Math.abs(change("live_bytes")) < LEAST && Math.abs(change("live_objects")) < LEAST && change("live_samples") <= 0;
    for (const name of ["live_bytes", "live_objects"] as const) paths[name].push(isSame ? 0 : change(name));
    for (const name of ["live_samples", "live_variance"] as const) {
      paths[name].push(isSame ? 0 : of(later, name) + of(earlier, name));
    }
    for (const name of NOTHING) paths[name].push(0); // as in differences of moments
    paths.before_bytes.push(of(earlier, "live_bytes"));
    paths.before_objects.push(of(earlier, "live_objects"));
  }
  const named = (profile: Profile): string[] => profile.subject.warnings.map((text) => `${profile.subject.name}: ${text}`);
  return {
    schema_version: after.schema_version,
    subject: {
      name: `${after.subject.name} compared with ${before.subject.name}`,
      pid: null,
      period: after.subject.period,
      resident_bytes: null,
      warnings: [...named(after), ...named(before)],
      is_difference: true,
      has_allocated: before.subject.has_allocated && after.subject.has_allocated,
      time: after.subject.time,
    },
    ...{ texts, frames, stacks, paths },
  };
}
