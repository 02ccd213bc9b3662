// SPDX-License-Identifier: Apache-2.0
//
// Whether the process that is shown has ended, and how: from its history, or from the daemon's list of ended processes
// (/ended.json), which has the latest thousand.
import { History } from "./history";

export interface Ending {
  pid: string;
  time: number | null; // in seconds since 1970; null: unknown
  how: string; // "exit 0", "signal 9", "OOM kill"; "": unknown
}

// The fields of an ended process (userspace/profile/figure_tables.h) that tell how it ended.
export interface Ended {
  pid: number;
  ended: string;
  status: number; // as waitpid(2) has it
  by_oom_kill: boolean;
}

// WIFSIGNALED and its relatives of wait(2).
export function howEnded(process: Pick<Ended, "status" | "by_oom_kill">): string {
  if (process.by_oom_kill) return "OOM kill";
  const signal = process.status & 127;
  return signal !== 0 ? `signal ${signal}` : `exit ${process.status >> 8}`;
}

// `since`: the process ran then, in seconds since 1970; earlier processes may have had its PID. null: it runs, as far
// as is known.
export function endingInHistory(pid: string, since: number, history: History | null): Ending | null {
  const process = history?.processes.find((one) => String(one.pid) === pid);
  if (process === undefined || process.ended === null || process.ended < since) return null;
  return { pid, time: process.ended, how: process.how };
}

// Like endingInHistory. Later processes may have the PID by now.
export function endingInList(pid: string, since: number, list: Ended[]): Ending | null {
  const endings = list.filter((one) => String(one.pid) === pid && Date.parse(one.ended) / 1000 >= since);
  const first = endings.sort((a, b) => Date.parse(a.ended) - Date.parse(b.ended))[0];
  return first === undefined ? null : { pid, time: Date.parse(first.ended) / 1000, how: howEnded(first) };
}

export async function fetchEnded(): Promise<Ended[]> {
  const answer = await fetch("/ended.json");
  return answer.ok ? ((await answer.json()) as { ended: Ended[] }).ended : [];
}
