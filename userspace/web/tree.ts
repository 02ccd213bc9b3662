// SPDX-License-Identifier: Apache-2.0
//
// Call paths as trees of names, in columns of numbers: a hundred thousand paths can make more than a million nodes.
import { eachPath, Names, UNKNOWN_PATH } from "./names";
import { columnsOf, Frames, Profile, Unit, Value } from "./profile";

export type Direction = "inwards" | "outwards";

// What frames with one name can differ in.
export const MIXED = ["function", "file", "line", "library", "flags"] as const;

export function isMixed(tree: Tree, node: number, what: (typeof MIXED)[number]): boolean {
  return (tree.mixed[node] & (1 << MIXED.indexOf(what))) !== 0;
}

// Node 0 is the root, which has no name. A parent comes before its children.
export interface Tree {
  texts: string[];
  size: number; // of the columns below
  name: Int32Array;
  frame: Int32Array; // one of the frames with this name; -1: none
  mixed: Uint8Array; // in what its frames differ: bits, 1 << the number of one of MIXED
  parent: Int32Array;
  depth: Int32Array;
  bytes: Float64Array;
  objects: Float64Array;
  samples: Float64Array;
  variance: Float64Array;
  weight: Float64Array; // what the node is drawn by: never negative
  firstChild: Int32Array; // where the children of a node begin in childList; one more entry than nodes
  childList: Int32Array; // the heaviest first
}

// Which part of a path a tree has: the names from `begin` to `end`; null: none.
export type Cut = (names: Int32Array, count: number) => { begin: number; end: number } | null;

export const wholePath: Cut = (_names, count) => ({ begin: 0, end: count });

// From the first call of a function on: the function and what it calls.
export function calleesOf(name: number): Cut {
  return (names, count) => {
    const at = names.indexOf(name);
    return at >= 0 && at < count ? { begin: at, end: count } : null;
  };
}

// Up to the first call of a function: the function and its callers.
export function callersOf(name: number): Cut {
  return (names, count) => {
    const at = names.indexOf(name);
    return at >= 0 && at < count ? { begin: 0, end: at + 1 } : null;
  };
}

export interface Options {
  value: Value;
  unit: Unit;
  direction: Direction;
  cut: Cut;
  keeps: (path: number) => boolean;
}

// Finds the node with a parent and a name: a hash table with open addressing, because a Map takes five times as long.
class Nodes {
  size = 0;
  name = new Int32Array(1024);
  frame = new Int32Array(1024);
  parent = new Int32Array(1024);
  depth = new Int32Array(1024);
  mixed = new Uint8Array(1024);
  private slots = new Int32Array(4096).fill(-1);

  constructor(private readonly frames: Frames) {}

  // REQUIRES: there is room.
  add(parent: number, name: number, frame: number): number {
    const node = this.size++;
    this.name[node] = name;
    this.frame[node] = frame;
    this.parent[node] = parent;
    this.depth[node] = parent < 0 ? 0 : this.depth[parent] + 1;
    return node;
  }

  child(parent: number, name: number, frame: number): number {
    if (this.size === this.name.length) this.grow();
    const mask = this.slots.length - 1;
    let slot = this.slotOf(parent, name) & mask;
    for (let node = this.slots[slot]; node >= 0; node = this.slots[slot]) {
      if (this.parent[node] === parent && this.name[node] === name) {
        if (this.frame[node] !== frame) this.mixed[node] |= this.differenceOf(this.frame[node], frame);
        return node;
      }
      slot = (slot + 1) & mask;
    }
    const node = this.add(parent, name, frame);
    this.slots[slot] = node;
    return node;
  }

  private differenceOf(a: number, b: number): number {
    return MIXED.reduce((bits, what, i) => bits | (this.frames[what][a] === this.frames[what][b] ? 0 : 1 << i), 0);
  }

  private slotOf(parent: number, name: number): number {
    const mixed = Math.imul(parent, 0x9e3779b1) ^ Math.imul(name, 0x85ebca6b);
    return mixed ^ (mixed >>> 15);
  }

  private grow(): void {
    for (const column of ["name", "frame", "parent", "depth"] as const) {
      const larger = new Int32Array(2 * this[column].length);
      larger.set(this[column]);
      this[column] = larger;
    }
    const mixed = new Uint8Array(2 * this.mixed.length);
    mixed.set(this.mixed);
    this.mixed = mixed;
    this.slots = new Int32Array(2 * this.slots.length).fill(-1);
    const mask = this.slots.length - 1;
    for (let node = 1; node < this.size; node++) {
      let slot = this.slotOf(this.parent[node], this.name[node]) & mask;
      while (this.slots[slot] >= 0) slot = (slot + 1) & mask;
      this.slots[slot] = node;
    }
  }
}

export function makeTree(profile: Profile, names: Names, options: Options): Tree {
  const unknown = names.texts.length;
  const nodes = new Nodes(profile.frames);
  nodes.add(-1, unknown, -1);
  const { paths } = profile;
  const columns = columnsOf(paths, options.value);
  const values = columns[options.unit];
  const lastNode = new Int32Array(paths.stack.length).fill(-1);
  eachPath(profile, names, (path, here, frames, count) => {
    if (!options.keeps(path) || (values[path] === 0 && columns.samples[path] === 0)) return;
    const part = options.cut(here, count);
    if (part === null) return;
    let node = 0;
    if (options.direction === "inwards") {
      for (let i = part.begin; i < part.end; i++) node = nodes.child(node, here[i], frames[i]);
    } else {
      for (let i = part.end - 1; i >= part.begin; i--) node = nodes.child(node, here[i], frames[i]);
    }
    lastNode[path] = count === 0 ? nodes.child(0, unknown, -1) : node;
  });
  const size = nodes.size;
  const sums = {
    bytes: new Float64Array(size),
    objects: new Float64Array(size),
    samples: new Float64Array(size),
    variance: new Float64Array(size),
    weight: new Float64Array(size),
  };
  for (let path = 0; path < lastNode.length; path++) {
    const node = lastNode[path];
    if (node < 0) continue;
    sums.bytes[node] += columns.bytes[path];
    sums.objects[node] += columns.objects[path];
    sums.samples[node] += columns.samples[path];
    sums.variance[node] += columns.variance[path];
    sums.weight[node] += Math.abs(values[path]);
  }
  const firstChild = new Int32Array(size + 1);
  for (let node = size - 1; node > 0; node--) {
    const parent = nodes.parent[node];
    sums.bytes[parent] += sums.bytes[node];
    sums.objects[parent] += sums.objects[node];
    sums.samples[parent] += sums.samples[node];
    sums.variance[parent] += sums.variance[node];
    sums.weight[parent] += sums.weight[node];
    firstChild[parent + 1]++;
  }
  for (let node = 0; node < size; node++) firstChild[node + 1] += firstChild[node];
  const childList = new Int32Array(Math.max(0, size - 1));
  const next = firstChild.slice();
  for (let node = 1; node < size; node++) childList[next[nodes.parent[node]]++] = node;
  for (let node = 0; node < size; node++) {
    if (firstChild[node + 1] - firstChild[node] < 2) continue;
    childList
      .subarray(firstChild[node], firstChild[node + 1])
      .sort((a, b) => sums.weight[b] - sums.weight[a] || a - b);
  }
  return {
    texts: names.texts.concat([UNKNOWN_PATH]),
    size,
    name: nodes.name.subarray(0, size),
    frame: nodes.frame.subarray(0, size),
    parent: nodes.parent.subarray(0, size),
    depth: nodes.depth.subarray(0, size),
    mixed: nodes.mixed.subarray(0, size),
    ...sums,
    firstChild,
    childList,
  };
}

export function childrenOf(tree: Tree, node: number): Int32Array {
  return tree.childList.subarray(tree.firstChild[node], tree.firstChild[node + 1]);
}

// The node that these positions among the children lead to; as far as they exist.
export function nodeAt(tree: Tree, positions: number[]): number {
  let node = 0;
  for (const position of positions) {
    const next = childrenOf(tree, node)[position];
    if (next === undefined) return node;
    node = next;
  }
  return node;
}

export function positionsOf(tree: Tree, node: number): number[] {
  const positions: number[] = [];
  for (let at = node; tree.parent[at] >= 0; at = tree.parent[at]) {
    positions.push(childrenOf(tree, tree.parent[at]).indexOf(at));
  }
  return positions.reverse();
}

// The node that these names lead to from the root; as far as they do.
export function nodeOfNames(tree: Tree, texts: string[]): number {
  let node = 0;
  for (const text of texts) {
    const next = childrenOf(tree, node).find((child) => tree.texts[tree.name[child]] === text);
    if (next === undefined) return node;
    node = next;
  }
  return node;
}

// The names from the root to the node.
export function namesTo(tree: Tree, node: number): number[] {
  const names: number[] = [];
  for (let at = node; tree.parent[at] >= 0; at = tree.parent[at]) names.push(tree.name[at]);
  return names.reverse();
}
