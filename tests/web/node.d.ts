// SPDX-License-Identifier: Apache-2.0
//
// What the tests use of node.
declare const process: { cpuUsage(since?: { user: number; system: number }): { user: number; system: number } };
declare module "node:test" {
  export function test(name: string, body: () => void): void;
}
declare module "node:assert" {
  export function strictEqual(actual: unknown, expected: unknown): void;
  export function deepStrictEqual(actual: unknown, expected: unknown): void;
}
