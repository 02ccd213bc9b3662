// SPDX-License-Identifier: Apache-2.0
//
// Steps from box to box in a tree, for the keyboard.
import { childrenOf, Tree } from "./tree";

export type Step = "parent" | "child" | "before" | "after";

// The next node in this direction that can be seen; the node itself, if there is none.
export function walk(tree: Tree, node: number, step: Step, isSeen: (node: number) => boolean): number {
  const parent = tree.parent[node];
  if (step === "parent") return parent >= 0 && isSeen(parent) ? parent : node;
  if (step === "child") return childrenOf(tree, node).find(isSeen) ?? node;
  if (parent < 0) return node;
  const siblings = childrenOf(tree, parent);
  const at = siblings.indexOf(node);
  const next = step === "after" ? siblings.subarray(at + 1).find(isSeen) : siblings.slice(0, at).reverse().find(isSeen);
  return next ?? node;
}

// A drawing with the root on top has callees below their callers; with the root at the bottom it is the other way round.
export function stepOf(key: string, isFlipped: boolean): Step | null {
  if (key === "ArrowLeft") return "before";
  if (key === "ArrowRight") return "after";
  if (key === "ArrowUp") return isFlipped ? "child" : "parent";
  if (key === "ArrowDown") return isFlipped ? "parent" : "child";
  return null;
}
