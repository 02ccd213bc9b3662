// SPDX-License-Identifier: Apache-2.0
//
// What the daemon remembers of a process or a service (/history.json; userspace/api/endpoints_history.cc).
import { fileName } from "./profile";
import { State } from "./state";

export interface HistoryPoint {
  time: number; // seconds since 1970
  processes: number;
  live_bytes: number;
  rss_bytes: number | null;
  limit_bytes: number | null;
}

export interface History {
  name: string;
  processes: { pid: number; command: string; service: string; started: number; ended: number | null; how: string }[];
  points: HistoryPoint[];
  paths: { id: number; frames: { function: string | null; library: string | null }[] }[]; // innermost frame first
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
  name: string;
  bytes: Float64Array; // at each point
}

export const OTHERS = "all other call paths";
const SECONDS = { hour: 3600, day: 86400, weeks: 14 * 86400 };
const POINTS = 300;
const PATHS = 6; // with a layer of their own
const FRAMES = 4; // of a path in a name

// The layers from the largest peak to the smallest, all others last.
export function layersOf(history: History): Layer[] {
  const byId = new Map<number, { layer: Layer; peak: number }>();
  const names = new Map(history.paths.map((path) => [path.id, nameOf(path.frames)]));
  for (const [point, id, bytes] of history.rows) {
    if (!(point >= 0 && point < history.points.length)) continue;
    let found = byId.get(id);
    if (found === undefined) {
      const name = id === 0 ? OTHERS : (names.get(id) ?? "?");
      found = { layer: { name, bytes: new Float64Array(history.points.length) }, peak: 0 };
      byId.set(id, found);
    }
    found.layer.bytes[point] += bytes;
    found.peak = Math.max(found.peak, found.layer.bytes[point]);
  }
  const rank = (one: { layer: Layer; peak: number }): number => (one.layer.name === OTHERS ? -1 : one.peak);
  return [...byId.values()].sort((a, b) => rank(b) - rank(a)).map((one) => one.layer);
}

function nameOf(frames: { function: string | null; library: string | null }[]): string {
  const names = frames.map((frame) => frame.function ?? (frame.library === null ? "?" : fileName(frame.library)));
  const shown = names.slice(0, FRAMES).join(" ← ");
  return names.length > FRAMES ? `${shown} ← …` : shown || "unknown call path";
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
  const answer = await fetch(
    `/history.json?${subjectOf(state)}&since=-${SECONDS[state.span]}&points=${POINTS}&paths=${PATHS}`,
  );
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

// An empty text: it is done.
export async function postMark(text: string, state: State): Promise<string> {
  const pid = state.service === "" ? `&pid=${encodeURIComponent(state.pid)}` : "";
  const answer = await fetch(`/mark?text=${encodeURIComponent(text)}${pid}`, { method: "POST" });
  if (answer.ok) return "";
  const body = (await answer.json().catch(() => ({}))) as { error?: string };
  return body.error ?? `the daemon answers ${answer.status}`;
}
