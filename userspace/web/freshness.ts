// SPDX-License-Identifier: Apache-2.0
//
// Keeps the page of "now" fresh: asks for news at the interval of the history, while somebody can see the page.
import { History } from "./history";

// No eye needs the news more often than at the least interval, and the daemon can answer that often. The most is for
// long spans: two weeks have a point for each hour.
const LEAST_SECONDS = 1;
const MOST_SECONDS = 60;
// The interval while there is only one point, or none.
const UNKNOWN_SECONDS = 5;

// The usual time between two points, in seconds.
export function intervalOf(history: History): number {
  const gaps = history.points.slice(1).map((point, i) => point.time - history.points[i].time);
  const median = gaps.sort((a, b) => a - b)[Math.floor(gaps.length / 2)] ?? UNKNOWN_SECONDS;
  return Math.min(MOST_SECONDS, Math.max(LEAST_SECONDS, median));
}

export class Freshness {
  private timer = 0;
  private seconds = UNKNOWN_SECONDS;

  // `isWanted`: whether the state of now is shown. `read` shows what is new, and returns the history, or null.
  constructor(
    private readonly isWanted: () => boolean,
    private readonly read: () => Promise<History | null>,
  ) {
    document.addEventListener("visibilitychange", () => {
      // What was missed is read at once.
      if (this.timer !== 0 && document.visibilityState === "visible") this.wait(0);
    });
  }

  start(history: History | null): void {
    this.seconds = history === null ? UNKNOWN_SECONDS : intervalOf(history);
    this.wait(this.seconds);
  }

  private wait(seconds: number): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.tick(), 1000 * seconds);
  }

  private async tick(): Promise<void> {
    if (document.visibilityState !== "visible") return; // until it is
    if (this.isWanted()) {
      // A daemon that does not answer may do so later.
      const history = await this.read().catch(() => null);
      if (history !== null) this.seconds = intervalOf(history);
    }
    this.wait(this.seconds);
  }
}
