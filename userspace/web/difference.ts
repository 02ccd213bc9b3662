// SPDX-License-Identifier: Apache-2.0
//
// The difference of two profiles, such as those of two processes. Paths are the same if they have the same functions,
// files, lines and libraries, from the outermost to the innermost: addresses differ between processes.
//
// Takes linear time. The profiles stay as they are.
import { Paths, Profile } from "./profile";

const COLUMNS = [
  "live_bytes",
  "live_objects",
  "live_samples",
  "live_variance",
  "allocated_bytes",
  "allocated_objects",
  "allocated_samples",
  "allocated_variance",
] as const;

// Numbers entries of two profiles alike if they have the same key.
class Numbers<Key> {
  private readonly numbers = new Map<Key, number>();

  // `isNew` is called for the first entry with a key.
  of(key: Key, isNew: () => void): number {
    const known = this.numbers.get(key);
    if (known !== undefined) return known;
    const number = this.numbers.size;
    this.numbers.set(key, number);
    isNew();
    return number;
  }
}

class Merger {
  readonly result: Profile;
  private readonly texts = new Numbers<string>();
  private readonly frames = new Numbers<string>();
  private readonly stacks = new Numbers<number>();
  private readonly paths = new Numbers<number>();

  constructor(after: Profile, before: Profile) {
    const noColumns = Object.fromEntries(COLUMNS.map((name) => [name, []])) as unknown as Pick<Paths, (typeof COLUMNS)[number]>;
    const named = (profile: Profile): string[] => profile.subject.warnings.map((text) => `${profile.subject.name}: ${text}`);
    this.result = {
      schema_version: after.schema_version,
      subject: {
        name: `${after.subject.name} compared with ${before.subject.name}`,
        pid: null,
        period: Math.max(after.subject.period, before.subject.period),
        resident_bytes: null,
        warnings: [...named(after), ...named(before)],
        is_difference: true,
      },
      texts: [],
      frames: { function: [], short: [], file: [], line: [], library: [], flags: [] },
      stacks: { parent: [], frame: [] },
      paths: { stack: [], truncated: [], ...noColumns, before_bytes: [], before_objects: [] },
    };
    this.text(""); // number 0 is no text in every profile
  }

  // `sign`: 1 for what is, -1 for what was before.
  add(profile: Profile, sign: 1 | -1): void {
    const texts = profile.texts.map((text) => this.text(text));
    const frames = profile.frames.function.map((_, frame) => this.frame(profile, frame, texts));
    const stacks = this.addStacks(profile, frames);
    const from = profile.paths;
    const to = this.result.paths as Required<Paths>;
    from.stack.forEach((stack, path) => {
      const number = this.path(stack < 0 ? -1 : stacks[stack]);
      to.truncated[number] |= from.truncated[path];
      for (const name of COLUMNS) {
        // Samples tell how good an estimate is, and errors of two estimates add up.
        const isSubtracted = name.endsWith("bytes") || name.endsWith("objects");
        to[name][number] += isSubtracted ? sign * from[name][path] : from[name][path];
      }
      if (sign > 0) return;
      to.before_bytes[number] += from.live_bytes[path];
      to.before_objects[number] += from.live_objects[path];
    });
  }

  private text(text: string): number {
    return this.texts.of(text, () => this.result.texts.push(text));
  }

  private frame(profile: Profile, frame: number, texts: number[]): number {
    const from = profile.frames;
    const [name, file, library] = [texts[from.function[frame]], texts[from.file[frame]], texts[from.library[frame]]];
    const line = from.line[frame];
    const to = this.result.frames;
    return this.frames.of([name, file, line, library].join(), () => {
      to.function.push(name);
      to.short.push(texts[from.short[frame]]);
      to.file.push(file);
      to.line.push(line);
      to.library.push(library);
      to.flags.push(from.flags[frame]);
    });
  }

  // The number in the result for each entry. A parent comes before its children.
  private addStacks(profile: Profile, frames: number[]): Int32Array {
    const { parent, frame } = profile.stacks;
    const to = this.result.stacks;
    const numbers = new Int32Array(parent.length);
    for (let entry = 0; entry < parent.length; entry++) {
      const above = parent[entry] < 0 ? -1 : numbers[parent[entry]];
      const own = frames[frame[entry]];
      numbers[entry] = this.stacks.of((above + 1) * 2 ** 26 + own, () => {
        to.parent.push(above);
        to.frame.push(own);
      });
    }
    return numbers;
  }

  private path(stack: number): number {
    const to = this.result.paths as Required<Paths>;
    return this.paths.of(stack, () => {
      to.stack.push(stack);
      for (const name of ["truncated", ...COLUMNS, "before_bytes", "before_objects"] as const) to[name].push(0);
    });
  }
}

export function differenceOf(after: Profile, before: Profile): Profile {
  const merger = new Merger(after, before);
  merger.add(after, 1);
  merger.add(before, -1);
  return merger.result;
}
