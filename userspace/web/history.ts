// SPDX-License-Identifier: Apache-2.0
//
// What the daemon remembers of a process or a service (/history.json; userspace/api/endpoints_history.cc).
import { STEP, UNKNOWN_PATH } from "./names";
import { State } from "./state";

export interface HistoryPoint {
  time: number; // seconds since 1970
  processes: number;
  live_bytes: number;
  rss_bytes: number | null;
  limit_bytes: number | null;
}

export interface HistoryFrame {
  short: string; // the name that the views of a profile show
  folded: boolean; // the views leave the frame out
}

export interface History {
  name: string;
  since: number | null; // what was asked for, in seconds since 1970; null: from the first point on
  until: number;
  processes: { pid: number; command: string; service: string; started: number; ended: number | null; how: string }[];
  points: HistoryPoint[];
  paths: { id: number; frames: HistoryFrame[] }[]; // innermost frame first
  rows: [number, number, number, number, number][]; // point, path (0: all others), live bytes, objects, samples
  marks: { time: number; pid: number | null; kind: string; text: string }[];
}

export interface Service {
  name: string;
  first: number;
  last: number;
  processes: number;
  running: number;
}

export interface Layer {
  name: string; // the innermost functions of the path
  path: string; // as pathText (rows.ts) has it; "": all other paths
  bytes: Float64Array; // at each point
}

export const OTHERS = "all other call paths";
const SECONDS = { hour: 3600, day: 86400, weeks: 14 * 86400, all: Infinity };
const POINTS = 300;
// More than there are layers: paths that differ in folded frames only make one layer.
const PATHS = 40;
const LAYERS = 6; // besides the layer of all other paths
const FRAMES = 4; // of a path in a name

// The layers from the largest peak to the smallest, all others last.
export function layersOf(history: History): Layer[] {
  const texts = new Map(history.paths.map((path) => [path.id, textOf(path.frames)]));
  const layers = new Map<string, Layer>();
  const layerOf = (path: string): Layer => {
    const known = layers.get(path);
    if (known !== undefined) return known;
    const layer = { name: nameOf(path), path, bytes: new Float64Array(history.points.length) };
    layers.set(path, layer);
    return layer;
  };
  for (const [point, id, bytes] of history.rows) {
    if (!(point >= 0 && point < history.points.length)) continue;
    layerOf(id === 0 ? "" : (texts.get(id) ?? UNKNOWN_PATH)).bytes[point] += bytes;
  }
  const own = [...layers.values()].filter((layer) => layer.path !== "");
  const peaks = new Map(own.map((layer) => [layer, Math.max(...layer.bytes)]));
  own.sort((a, b) => (peaks.get(b) ?? 0) - (peaks.get(a) ?? 0));
  for (const layer of own.slice(LAYERS)) {
    const others = layerOf("");
    layer.bytes.forEach((bytes, point) => (others.bytes[point] += bytes));
  }
  const others = layers.get("");
  return [...own.slice(0, LAYERS), ...(others === undefined ? [] : [others])];
}

// The present name of the path that had this name before: the daemon finds the names of its functions file by file.
export function renamedPath(before: History, now: History, path: string): string {
  const ids = new Set(before.paths.filter(({ frames }) => textOf(frames) === path).map(({ id }) => id));
  const same = now.paths.find(({ id }) => ids.has(id));
  return same === undefined ? path : textOf(same.frames);
}

function textOf(frames: HistoryFrame[]): string {
  const kept = frames.filter((frame) => !frame.folded);
  return (kept.length > 0 ? kept : frames).map((frame) => frame.short).join(STEP) || UNKNOWN_PATH;
}

function nameOf(path: string): string {
  if (path === "") return OTHERS;
  const names = path.split(STEP);
  return names.length > FRAMES ? [...names.slice(0, FRAMES), "…"].join(STEP) : path;
}

// What the axis of a timeline runs over: what was asked for, or the points themselves. In seconds since 1970.
export function axisOf({ since, until, points }: History): { begin: number; end: number } {
  const last = points[points.length - 1].time;
  const begin = since ?? points[0].time;
  // A second at least: one point has no length.
  return { begin, end: Math.max(since === null ? last : Math.max(until, last), begin + 1) };
}

// The number of the point nearest to a time; -1: there is none.
export function nearest(history: History, time: number): number {
  let best = -1;
  history.points.forEach((point, i) => {
    if (best < 0 || Math.abs(point.time - time) < Math.abs(history.points[best].time - time)) best = i;
  });
  return best;
}

function subjectOf(state: State): string {
  return state.service !== "" ? `name=${encodeURIComponent(state.service)}` : `pid=${encodeURIComponent(state.pid)}`;
}

// null: there is none.
export async function fetchHistory(state: State): Promise<History | null> {
  const seconds = SECONDS[state.span];
  const since = seconds === Infinity ? "" : `&since=-${seconds}`;
  const answer = await fetch(`/history.json?${subjectOf(state)}${since}&points=${POINTS}&paths=${PATHS}`);
  if (!answer.ok) return null;
  const history = (await answer.json()) as History;
  return history.points.length === 0 ? null : history;
}

// The profile of a moment (0: the latest one), or what has changed since another one.
export function momentAddress(state: State, latest: number): string {
  const at = state.at === 0 ? latest : state.at;
  return `/history/profile.json?${subjectOf(state)}&at=${at}${state.from === 0 ? "" : `&from=${state.from}`}`;
}

export async function fetchServices(): Promise<Service[]> {
  const answer = await fetch("/history.json");
  if (!answer.ok) return [];
  return ((await answer.json()) as { services: Service[] }).services;
}

// Returns an empty text if the mark was made.
export async function postMark(text: string, state: State): Promise<string> {
  const pid = state.service === "" ? `&pid=${encodeURIComponent(state.pid)}` : "";
  const answer = await fetch(`/mark?text=${encodeURIComponent(text)}${pid}`, { method: "POST" });
  if (answer.ok) return "";
  const body = (await answer.json().catch(() => ({}))) as { error?: string };
  return body.error ?? `the daemon answers ${answer.status}`;
}
