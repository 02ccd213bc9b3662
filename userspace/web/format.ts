// SPDX-License-Identifier: Apache-2.0
//
// Figures for people, as `heaptap report` writes them (userspace/report/human.h).
import { Measure, Unit } from "./profile";

const UNITS = ["", "K", "M", "G", "T", "P", "E"];

// No text has 1024 or more of a unit: a figure that would be rounded up to 1024 is 1 of the next unit.
export function bytes(value: number): string {
  let size = Math.abs(value);
  let unit = 0;
  while (size >= (unit === 0 ? 1023.5 : 1023.95) && unit < UNITS.length - 1) {
    size /= 1024;
    unit++;
  }
  const text = unit === 0 ? String(Math.round(size)) : size.toFixed(1) + UNITS[unit];
  return value < 0 && text !== "0" ? `-${text}` : text;
}

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

export function figure(value: number, unit: Unit): string {
  return unit === "bytes" ? bytes(value) : count(value);
}

export function signed(value: number, unit: Unit, isDifference: boolean): string {
  return (isDifference && value > 0 ? "+" : "") + figure(value, unit);
}

export function percent(part: number, whole: number): string {
  return whole === 0 ? "-" : `${((100 * part) / whole).toFixed(1)}%`;
}

export function error(measure: Measure): number {
  return Math.sqrt(Math.max(measure.variance, 0));
}

// Whether the bytes are less than twice their standard error.
export function isNoise(measure: Measure): boolean {
  return measure.variance > 0 && Math.abs(measure.bytes) < 2 * error(measure);
}

export function plural(value: number, noun: string): string {
  const text = count(value);
  return `${text} ${noun}${text === "1" ? "" : "s"}`;
}

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts: [number, string][] = [
    [86400, "d"],
    [3600, "h"],
    [60, "m"],
  ];
  for (const [size, unit] of parts) {
    if (whole >= size) return `${Math.floor(whole / size)}${unit}`;
  }
  return `${whole}s`;
}

// The time of a moment, in seconds since 1970; with the date if that is another day.
export function clock(seconds: number): string {
  const date = new Date(seconds * 1000);
  return date.toDateString() === new Date().toDateString() ? date.toLocaleTimeString() : date.toLocaleString();
}
