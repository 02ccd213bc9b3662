// SPDX-License-Identifier: Apache-2.0
//
// The comparison of two running processes of the daemon: its profile, and the bar above it.
import { differenceOf } from "./difference";
import { make } from "./dom";
import * as format from "./format";
import { Profile } from "./profile";
import { CHOOSE, State } from "./state";

export interface Comparison {
  before: string; // names
  after: string;
  note: string; // what people have to know about the figures; "": nothing
  profile: Profile; // the difference
}

// A difference has other filters, columns and moments than what was shown before.
const FRESH: Partial<State> = {
  ...{ value: "live", at: 0, from: 0, zoom: [], focus: "", path: "", search: "", sort: "self", ascending: false },
  ...{ thread: "", size: null, age: null },
};

// Changes of the state.
export function startChoosing(): Partial<State> {
  return { ...FRESH, base: CHOOSE };
}
export function compareWith(pid: string): Partial<State> {
  return { ...FRESH, base: pid };
}
export function endComparison(): Partial<State> {
  return { ...FRESH, base: "" };
}

// Throws an Error with one line for people.
export async function fetchComparison(state: State): Promise<Comparison> {
  if (state.base === state.pid) throw new Error(`Process ${state.pid} cannot be compared with itself. Choose another one.`);
  const [after, before] = await Promise.all([fetchRunning(state.pid), fetchRunning(state.base)]);
  return {
    before: before.subject.name,
    after: after.subject.name,
    note: noteOf(after, before),
    profile: differenceOf(after, before),
  };
}

async function fetchRunning(pid: string): Promise<Profile> {
  if (!/^\d+$/.test(pid)) throw new Error("The address names no process.");
  const answer = await fetch(`/pid/${pid}/profile.json`);
  if (answer.ok) return (await answer.json()) as Profile;
  if (answer.status === 404) throw new Error(`Process ${pid} cannot be compared: it has ended, or it is not recorded.`);
  throw new Error(`Process ${pid}: ${(await answer.text()).trim()}`);
}

function noteOf(after: Profile, before: Profile): string {
  const [later, earlier] = [after.subject.period, before.subject.period];
  if (later === earlier) return "";
  return `Sampled differently: before ${rateOf(earlier)}, after ${rateOf(later)}. The standard error counts both.`;
}

function rateOf(period: number): string {
  return period > 1 ? `one sample every ${format.bytes(period)}` : "every allocation";
}

// A button that asks for the other process.
export function makeCompareButton(change: (part: Partial<State>) => void): HTMLElement {
  return make("button", { type: "button", class: "back", id: "compare", click: () => change(startChoosing()) }, "Compare…");
}

export function makeComparisonBar(comparison: Comparison, state: State, change: (part: Partial<State>) => void): HTMLElement {
  const button = (id: string, text: string, part: () => Partial<State>): HTMLElement =>
    make("button", { type: "button", class: "back", id, click: () => change(part()) }, text);
  const names = make(
    "dl",
    {},
    ...[make("dt", {}, "Before"), make("dd", { title: comparison.before }, comparison.before)],
    ...[make("dt", {}, "After"), make("dd", { title: comparison.after }, comparison.after)],
  );
  const bar = make(
    "section",
    { class: "comparison", "aria-label": "Comparison" },
    names,
    button("swap", "⇄ Swap", () => ({ pid: state.base, base: state.pid, zoom: [] })),
    button("compare", "Another process…", startChoosing),
    button("end-comparison", "End comparison", endComparison),
  );
  if (comparison.note !== "") bar.append(make("p", { role: "status" }, comparison.note));
  return bar;
}
