// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a profile's view are drawn from. A scene is made anew whenever the state changes.
import { Ending } from "./ending";
import * as format from "./format";
import { Names } from "./names";
import { Keeps, Measure, Profile, total } from "./profile";
import { State } from "./state";

export interface Host {
  state: State;
  change(part: Partial<State>): void;
  back: (() => void) | null; // to the table of processes
  timeline: HTMLElement | null; // above the profile
  isLive: boolean; // the process was running when the profile was read
  ending: Ending | null; // of the process; null: it runs, or nobody knows
  readAgain: (() => void) | null; // null: the profile does not change
}

export interface Scene {
  profile: Profile; // what the filter leaves of the whole one
  whole: Profile;
  lack: string; // what the whole one lacks for the filter, as a sentence; "": nothing
  host: Host;
  names: Names; // of the boxes
  tableNames: Names; // of the table's rows
  keeps: Keeps;
}

// null: the text is not a regular expression.
export function compile(text: string): RegExp | null {
  try {
    return new RegExp(text, "i");
  } catch {
    return null;
  }
}

// Why there is nothing to see, as a sentence; "": nobody knows.
export function emptinessOf(scene: Scene): string {
  if (scene.lack !== "") return scene.lack;
  const { whole } = scene;
  if (whole.subject.is_difference || total(whole, "live").samples + total(whole, "allocated").samples > 0) return "";
  return whole.subject.period > 1 ? "The profile is empty: no sample was taken." : "The profile is empty: nothing was allocated.";
}

// The mean size of an object; null: it is not known. In a difference, net bytes and net objects need not be of the same
// blocks, so their quotient may not be the size of any block.
export function meanSize(measure: Measure, isDifference: boolean): string | null {
  return isDifference || measure.objects === 0 ? null : format.bytes(measure.bytes / measure.objects);
}
