// SPDX-License-Identifier: Apache-2.0
//
// What the page shows, as the part of its address after "#": a link shows the same picture.
import { AGES, UNKNOWN_AGE } from "./classes";
import { By } from "./names";
import { Unit, Value } from "./profile";

export type View = "icicle" | "bottom-up" | "butterfly";
export type Span = "hour" | "day" | "weeks" | "all";
export type Table = "function" | "line" | "path" | "library" | "thread" | "size" | "age";

export interface State {
  pid: string; // of the daemon's process; "": the page's own profile, or the table of processes
  service: string; // of the history, instead of one process
  base: string; // PID of the process that this one is compared with; CHOOSE: the table, to choose it; "": no comparison
  span: Span; // of the timeline
  at: number; // a moment of the history, in seconds since 1970; 0: now
  from: number; // the difference since this moment; 0: no difference
  value: Value;
  unit: Unit;
  view: View;
  by: By;
  table: Table;
  full: boolean;
  search: string;
  focus: string; // a name: only paths through it
  path: string; // only this call path (pathText in rows.ts)
  thread: string; // the parts of a Filter (classes.ts)
  size: number | null;
  age: number | null;
  zoom: number[]; // positions among children, from the root
  sort: string; // column of the table
  ascending: boolean;
  running: boolean; // in the table of processes: without those that have ended
}

export const CHOOSE = "choose";

export const DEFAULTS: State = {
  pid: "",
  service: "",
  base: "",
  span: "hour",
  at: 0,
  from: 0,
  value: "live",
  unit: "bytes",
  view: "icicle",
  by: "function",
  table: "function",
  full: false,
  search: "",
  focus: "",
  path: "",
  thread: "",
  size: null,
  age: null,
  zoom: [],
  sort: "self",
  ascending: false,
  running: false,
};

const CHOICES: { [key: string]: readonly string[] } = {
  span: ["hour", "day", "weeks", "all"],
  value: ["live", "allocated", "freed"],
  unit: ["bytes", "objects"],
  view: ["icicle", "bottom-up", "butterfly"],
  by: ["function", "line", "library"],
  table: ["function", "line", "path", "library", "thread", "size", "age"],
};

export function toHash(state: State): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    const text = Array.isArray(value) ? value.join(".") : String(value);
    const standard = (DEFAULTS as unknown as { [key: string]: unknown })[key];
    if (text !== (Array.isArray(standard) ? "" : String(standard))) words.set(key, text);
  }
  return words.toString();
}

// Unknown words and values count as absent.
export function fromHash(hash: string): State {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const state: State = { ...DEFAULTS, zoom: [] };
  const target = state as unknown as { [key: string]: unknown };
  for (const [key, choices] of Object.entries(CHOICES)) {
    const word = words.get(key);
    if (word !== null && choices.includes(word)) target[key] = word;
  }
  for (const key of ["pid", "service", "search", "focus", "path", "thread", "sort"]) target[key] = words.get(key) ?? target[key];
  const base = words.get("base") ?? "";
  if (base === CHOOSE || /^\d{1,10}$/.test(base)) state.base = base;
  state.full = words.get("full") === "true";
  state.ascending = words.get("ascending") === "true";
  state.running = words.get("running") === "true";
  for (const key of ["at", "from"]) {
    const word = words.get(key) ?? "";
    if (/^\d{1,12}(\.\d{1,3})?$/.test(word)) target[key] = Number(word);
  }
  const size = words.get("size") ?? "";
  if (/^\d{1,15}$/.test(size)) state.size = Number(size);
  const age = words.get("age") ?? "";
  if ([UNKNOWN_AGE, ...AGES].map(String).includes(age)) state.age = Number(age);
  const zoom = words.get("zoom") ?? "";
  if (/^\d+(\.\d+)*$/.test(zoom)) state.zoom = zoom.split(".").map(Number);
  return state;
}
