// SPDX-License-Identifier: Apache-2.0
//
// What the daemon remembers of a service (/history.json, userspace/history/README.md), and what changed in a range of it.
import { fileName } from "./profile";

export interface HistoryPoint {
  time: number; // seconds since 1970
  pid: number;
  live_bytes: number;
  live_objects: number;
  rss_bytes: number | null;
  limit_bytes: number | null;
}

interface HistoryFrame {
  function: string | null;
  file: string | null;
  line: number | null;
  library: string | null;
}

export interface History {
  name: string;
  points: HistoryPoint[];
  paths: { id: number; frames: HistoryFrame[] }[]; // the innermost frame first
  rows: [number, number, number, number][]; // point, path (0: the rest), live bytes, live objects
  marks: { time: number; pid: number | null; kind: string; text: string }[];
}

export interface PathHistory {
  id: number; // 0: the rest
  name: string;
  bytes: Float64Array; // at each point
  peak: number;
}

export const REST = "all other call paths";

function frameText(frame: HistoryFrame): string {
  return frame.function ?? (frame.library === null ? "?" : fileName(frame.library));
}

// The paths by their peaks, the largest first.
export function pathHistories(history: History): PathHistory[] {
  const byId = new Map<number, PathHistory>();
  const names = new Map<number, string>(history.paths.map((path) => [path.id, path.frames.map(frameText).join(" ← ")]));
  for (const [point, id, bytes] of history.rows) {
    let path = byId.get(id);
    if (path === undefined) {
      path = {
        id,
        name: id === 0 ? REST : (names.get(id) ?? "?"),
        bytes: new Float64Array(history.points.length),
        peak: 0,
      };
      byId.set(id, path);
    }
    if (point < 0 || point >= path.bytes.length) continue;
    path.bytes[point] += bytes;
    path.peak = Math.max(path.peak, path.bytes[point]);
  }
  return [...byId.values()].sort((a, b) => b.peak - a.peak);
}

// The number of the point nearest to a time; -1: there is none.
export function nearest(history: History, time: number): number {
  let best = -1;
  for (let i = 0; i < history.points.length; i++) {
    if (best < 0 || Math.abs(history.points[i].time - time) < Math.abs(history.points[best].time - time)) best = i;
  }
  return best;
}

export interface Change {
  name: string;
  before: number;
  after: number;
}

// What changed from one point to another, the largest growth first.
export function changes(paths: PathHistory[], from: number, to: number): Change[] {
  return paths
    .map((path) => ({ name: path.name, before: path.bytes[from] ?? 0, after: path.bytes[to] ?? 0 }))
    .filter((change) => change.before !== 0 || change.after !== 0)
    .sort((a, b) => b.after - b.before - (a.after - a.before));
}
