// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a profile's view are drawn from. A scene is made anew whenever the state changes.
import * as format from "./format";
import { Names } from "./names";
import { Measure, Profile } from "./profile";
import { State } from "./state";

export interface Host {
  state: State;
  change(part: Partial<State>): void;
  back: (() => void) | null; // to the table of processes
  timeline: HTMLElement | null; // above the profile
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

// Whether a path is shown.
export type Keeps = (path: number) => boolean;

// null: the text is not a regular expression.
export function compile(text: string): RegExp | null {
  try {
    return new RegExp(text, "i");
  } catch {
    return null;
  }
}

// null: it is not known. In a difference, net bytes and net objects need not be of the same blocks, so that their
// quotient may be the size of no block.
export function meanSize(measure: Measure, isDifference: boolean): string | null {
  return isDifference || measure.objects === 0 ? null : format.bytes(measure.bytes / measure.objects);
}
