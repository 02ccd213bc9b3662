// SPDX-License-Identifier: Apache-2.0
//
// Changes between the two profiles of a difference, relative to the earlier one.
import { Amount, Unit } from "./profile";

export type Fate = "new" | "vanished" | "changed";

const LEAST = 0.5; // bytes: less is a rounding error of the estimates

export function fateOf(before: Amount, change: Amount): Fate {
  const after = before.bytes + change.bytes;
  if (before.bytes < LEAST) return after < LEAST ? "changed" : "new";
  return after < LEAST ? "vanished" : "changed";
}

// The order: new before everything else, then by the share.
export function relativeOrder(before: Amount, change: Amount, unit: Unit): number {
  if (fateOf(before, change) === "new") return Infinity;
  return before[unit] === 0 ? 0 : change[unit] / before[unit];
}

export function relativeText(before: Amount, change: Amount, unit: Unit): string {
  const fate = fateOf(before, change);
  if (fate !== "changed") return fate;
  if (before[unit] === 0) return "-";
  const percent = (100 * change[unit]) / before[unit];
  const text = Math.abs(percent) < 1000 ? percent.toFixed(1) : percent.toFixed(0);
  return `${percent > 0 ? "+" : ""}${text === "-0.0" ? "0.0" : text}%`;
}
