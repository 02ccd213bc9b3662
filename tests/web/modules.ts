// SPDX-License-Identifier: Apache-2.0
//
// Unit tests of the page's modules: names, trees, rows, figures, and the state in the address.
import { deepStrictEqual, strictEqual } from "node:assert";
import { test } from "node:test";

import { fateOf, relativeOrder, relativeText } from "../../userspace/web/changes";
import { AGES, ageText, Filter, lackFor, lackOf, needsLive, UNKNOWN_AGE } from "../../userspace/web/classes";
import { differenceOf } from "../../userspace/web/difference";
import { endingInHistory, endingInList } from "../../userspace/web/ending";
import * as format from "../../userspace/web/format";
import { intervalOf } from "../../userspace/web/freshness";
import { axisOf, History, layersOf, momentAddress, nearest, OTHERS, renamedPath } from "../../userspace/web/history";
import { nameFrames } from "../../userspace/web/names";
import { growthHint, growthText, matches, placeOf, residentText } from "../../userspace/web/processes_view";
import { Amount, lackOfValue, measureOf, Profile, total } from "../../userspace/web/profile";
import { nextOf } from "../../userspace/web/rove";
import { hasPathText, pathText, Row, rowsByName, rowsByPath } from "../../userspace/web/rows";
import { meanSize } from "../../userspace/web/scene";
import { filterProfile, rowsByClass } from "../../userspace/web/shares";
import { DEFAULTS, fromHash, toHash } from "../../userspace/web/state";
import { sortRows } from "../../userspace/web/table";
import {
  calleesOf,
  callersOf,
  childrenOf,
  isMixed,
  makeTree,
  MIXED,
  namesTo,
  nodeAt,
  nodeOfNames,
  Options,
  positionsOf,
  Tree,
  wholePath,
} from "../../userspace/web/tree";
import { stepOf, walk } from "../../userspace/web/walk";

// main calls a, which calls std::x; main calls b, which calls itself; and a path without frames.
function example(): Profile {
  const zeros = [0, 0, 0, 0];
  return {
    schema_version: 1,
    subject: { name: "x", pid: null, period: 1, resident_bytes: null, warnings: [], is_difference: false, has_allocated: true },
    texts: ["", "main", "a", "std::x<int>", "std::x<...>", "b", "/src/a.c", "/bin/x", "/lib/y.so"],
    frames: {
      function: [1, 2, 3, 5],
      short: [1, 2, 4, 5],
      file: [6, 6, 0, 6],
      line: [10, 20, 0, 30],
      library: [7, 7, 8, 7],
      flags: [2, 2, 6, 2],
    },
    stacks: { parent: [-1, 0, 1, 0, 3], frame: [0, 1, 2, 3, 3] },
    paths: {
      stack: [2, 4, -1, 3],
      truncated: zeros,
      live_bytes: [100, 30, 7, 5],
      live_objects: [10, 3, 7, 1],
      live_samples: [10, 3, 7, 1],
      live_variance: zeros,
      allocated_bytes: [200, 30, 7, 5],
      allocated_objects: [20, 3, 7, 1],
      allocated_samples: [20, 3, 7, 1],
      allocated_variance: zeros,
    },
  };
}

const ALL = (): boolean => true;
const OPTIONS: Options = { value: "live", unit: "bytes", direction: "inwards", cut: wholePath, keeps: ALL };

function treeOf(folds: boolean, options: Partial<Options> = {}): Tree {
  const profile = example();
  return makeTree(profile, nameFrames(profile, "function", folds), { ...OPTIONS, ...options });
}

// "name bytes(children)", in the order of the tree.
function shape(tree: Tree, node = 0): string {
  const below = Array.from(childrenOf(tree, node)).map((child) => shape(tree, child));
  const name = node === 0 ? "" : `${tree.texts[tree.name[node]]} `;
  return `${name}${tree.bytes[node]}${below.length > 0 ? `(${below.join(", ")})` : ""}`;
}

test("a tree inwards, with all frames", () => {
  strictEqual(shape(treeOf(false)), "142(main 135(a 100(std::x<int> 100), b 35(b 30)), [unknown call path] 7)");
});

test("folded frames count for their callers", () => {
  strictEqual(shape(treeOf(true)), "142(main 135(a 100, b 35(b 30)), [unknown call path] 7)");
});

test("a tree outwards", () => {
  strictEqual(
    shape(treeOf(true, { direction: "outwards" })),
    "142(a 100(main 100), b 35(b 30(main 30), main 5), [unknown call path] 7)",
  );
});

test("other measures", () => {
  strictEqual(treeOf(true, { value: "allocated" }).bytes[0], 242);
  strictEqual(treeOf(true, { unit: "objects" }).weight[0], 21);
});

test("freed is what was allocated and is not live", () => {
  const profile = example();
  profile.paths.allocated_variance = [9, 0, 0, 0];
  profile.paths.live_variance = [5, 0, 0, 0];
  // Rounded apart, and read a moment apart.
  profile.paths.allocated_bytes[1] = 30.1;
  profile.paths.allocated_objects[3] = 0;
  deepStrictEqual(total(profile, "freed"), { bytes: 100, objects: 10, samples: 10, variance: 4 });
  deepStrictEqual(measureOf(profile, 1, "freed"), { bytes: 0, objects: 0, samples: 0, variance: 0 });
  strictEqual(shape(makeTree(profile, nameFrames(profile, "function", true), { ...OPTIONS, value: "freed" })), "100(main 100(a 100))");
  const threads = rowsByClass(divided(), "thread", "freed", ALL_CLASSES, ALL);
  deepStrictEqual(threads.map((row) => row.self.bytes), [100]);
  deepStrictEqual(rowsByClass(divided(), "age", "freed", ALL_CLASSES, ALL), []);
  deepStrictEqual(total(filterProfile(divided(), { ...ALL_CLASSES, thread: "worker" }), "freed").bytes, 100);
});

test("no measure is offered that the profile does not know by call path", () => {
  const of = (subject: Partial<Profile["subject"]>): string[] =>
    (["live", "allocated", "freed"] as const).map((value) => lackOfValue({ ...example(), subject: { ...example().subject, ...subject } }, value));
  deepStrictEqual(of({}), ["", "", ""]);
  const history = "What was allocated and freed is known of whole processes at most, not by call path.";
  deepStrictEqual(of({ has_allocated: false }), ["", history, history]);
  deepStrictEqual(of({ has_allocated: false, is_difference: true }), ["", history, history]);
  deepStrictEqual(of({ is_difference: true })[1], "A difference shows live memory only.");
});

test("keys in a group of buttons", () => {
  deepStrictEqual(["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End", "x"].map((key) => nextOf(key, 0, 3)), [1, 1, 2, 2, 0, 2, null]);
  deepStrictEqual([nextOf("ArrowRight", 2, 3), nextOf("ArrowLeft", 2, 3), nextOf("ArrowRight", 0, 1)], [0, 1, 0]);
});

test("callers and callees of a function, with recursion counted once", () => {
  const names = nameFrames(example(), "function", true);
  const b = names.texts.indexOf("b");
  strictEqual(shape(treeOf(true, { cut: calleesOf(b) })), "35(b 35(b 30))");
  strictEqual(shape(treeOf(true, { cut: callersOf(b), direction: "outwards" })), "35(b 35(main 35))");
});

test("a box says in what its calls differ", () => {
  const profile = example();
  // main calls a at lines 20 and 21, and a library's std::x of two types.
  profile.texts.push("std::x<long>");
  profile.frames = {
    function: [1, 2, 2, 3, 9],
    short: [1, 2, 2, 4, 4],
    file: [6, 6, 6, 0, 0],
    line: [10, 20, 21, 0, 0],
    library: [7, 7, 7, 8, 8],
    flags: [2, 2, 2, 2, 2],
  };
  profile.stacks = { parent: [-1, 0, 0, 0, 0], frame: [0, 1, 2, 3, 4] };
  profile.paths.stack = [1, 2, 3, 4];
  const tree = makeTree(profile, nameFrames(profile, "function", true), OPTIONS);
  const mixed = (name: string): string[] => MIXED.filter((what) => isMixed(tree, nodeOfNames(tree, ["main", name]), what));
  deepStrictEqual(mixed("a"), ["line"]);
  deepStrictEqual(mixed("std::x<...>"), ["function"]);
  strictEqual(isMixed(tree, nodeOfNames(tree, ["main"]), "line"), false);
});

test("how a process has ended", () => {
  const list = [
    { pid: 7, ended: "2026-01-01T00:00:10Z", status: 9, by_oom_kill: false },
    { pid: 7, ended: "2026-01-01T00:00:05Z", status: 3 << 8, by_oom_kill: false },
    { pid: 8, ended: "2026-01-01T00:00:05Z", status: 9, by_oom_kill: true },
  ];
  const begin = Date.parse("2026-01-01T00:00:00Z") / 1000;
  deepStrictEqual(endingInList("7", begin, list), { pid: "7", time: begin + 5, how: "exit 3" });
  deepStrictEqual(endingInList("7", begin + 6, list)?.how, "signal 9");
  strictEqual(endingInList("7", begin + 11, list), null);
  strictEqual(endingInList("8", begin, list)?.how, "OOM kill");
  const history: History = { name: "", since: null, until: 0, processes: [], points: [], paths: [], rows: [], marks: [] };
  strictEqual(endingInHistory("7", begin, null), null);
  const process = { pid: 7, command: "x", service: "x", started: begin, ended: begin + 5, how: "exit 0" };
  deepStrictEqual(endingInHistory("7", begin, { ...history, processes: [process] }), { pid: "7", time: begin + 5, how: "exit 0" });
  strictEqual(endingInHistory("7", begin + 6, { ...history, processes: [process] }), null);
  strictEqual(endingInHistory("7", begin, { ...history, processes: [{ ...process, ended: null }] }), null);
});

test("only some paths", () => {
  strictEqual(shape(treeOf(true, { keeps: (path) => path === 1 })), "30(main 30(b 30(b 30)))");
});

test("positions lead to a node and back", () => {
  const tree = treeOf(true);
  for (let node = 0; node < tree.size; node++) strictEqual(nodeAt(tree, positionsOf(tree, node)), node);
  strictEqual(nodeAt(tree, [0, 99]), nodeAt(tree, [0]));
  deepStrictEqual(
    namesTo(tree, nodeAt(tree, [0, 1])).map((name) => tree.texts[name]),
    ["main", "b"],
  );
});

test("names lead to a node, as far as they do", () => {
  const tree = treeOf(true);
  strictEqual(nodeOfNames(tree, ["main", "b", "b"]), nodeAt(tree, [0, 1, 0]));
  strictEqual(nodeOfNames(tree, ["main", "nobody", "b"]), nodeAt(tree, [0]));
  strictEqual(nodeOfNames(tree, []), 0);
});

test("steps from box to box", () => {
  const tree = treeOf(true); // main(a, b(b)), unknown
  const [main, unknown, a, b] = [[0], [1], [0, 0], [0, 1]].map((positions) => nodeAt(tree, positions));
  strictEqual(walk(tree, 0, "parent", ALL), 0);
  strictEqual(walk(tree, 0, "after", ALL), 0);
  strictEqual(walk(tree, 0, "child", ALL), main);
  strictEqual(walk(tree, main, "after", ALL), unknown);
  strictEqual(walk(tree, unknown, "before", ALL), main);
  strictEqual(walk(tree, unknown, "child", ALL), unknown);
  strictEqual(walk(tree, a, "before", ALL), a);
  strictEqual(walk(tree, b, "parent", ALL), main);
  // What cannot be seen is passed over.
  strictEqual(walk(tree, main, "child", (node) => node !== a), b);
  strictEqual(walk(tree, b, "before", (node) => node !== a), b);
  strictEqual(walk(tree, b, "parent", (node) => node !== main), b);
  strictEqual(stepOf("ArrowUp", false), "parent");
  strictEqual(stepOf("ArrowUp", true), "child");
  strictEqual(stepOf("x", true), null);
});

test("many nodes", () => {
  const profile = example();
  const count = 5000;
  profile.stacks = { parent: [], frame: [] };
  profile.paths.stack = [];
  profile.texts = ["", "lib"];
  profile.frames = { function: [], short: [], file: [], line: [], library: [], flags: [] };
  for (let i = 0; i < count; i++) {
    profile.texts.push(`f${i}`);
    profile.frames.function.push(i + 2);
    profile.frames.short.push(i + 2);
    profile.frames.file.push(0);
    profile.frames.line.push(0);
    profile.frames.library.push(1);
    profile.frames.flags.push(2);
    profile.stacks.parent.push(-1, 2 * i);
    profile.stacks.frame.push(i, (7 * i) % count);
    profile.paths.stack.push(2 * i + 1);
  }
  for (const column of [profile.paths.live_bytes, profile.paths.live_objects, profile.paths.live_samples]) {
    column.length = 0;
    for (let i = 0; i < count; i++) column.push(1 + (i % 10));
  }
  profile.paths.live_variance = new Array(count).fill(0);
  const tree = makeTree(profile, nameFrames(profile, "function", true), OPTIONS);
  strictEqual(tree.size, 2 * count + 1);
  strictEqual(tree.bytes[0], (count / 10) * 55);
  const children = Array.from(childrenOf(tree, 0), (node) => tree.weight[node]);
  deepStrictEqual(children, [...children].sort((a, b) => b - a));
});

test("rows by function", () => {
  const profile = example();
  const rows = rowsByName(profile, nameFrames(profile, "function", true), "live", ALL);
  const text = rows.map((row) => `${row.name} ${row.self.bytes} ${row.total.bytes}`);
  deepStrictEqual(text.sort(), ["[unknown call path] 7 7", "a 100 100", "b 35 35", "main 0 135"]);
});

// The same, divided among the threads "worker" and "main"; main's share of the first path is of two sizes and two ages.
function divided(): Profile {
  const profile = example();
  profile.texts.push("worker", "main thread");
  const [worker, main] = [9, 10];
  const zeros = [0, 0, 0, 0, 0];
  profile.threads = {
    path: [0, 0, 1, 2, 3],
    thread: [worker, main, worker, main, main],
    live_bytes: [40, 60, 30, 7, 5],
    live_objects: [4, 6, 3, 7, 1],
    live_samples: [4, 6, 3, 7, 1],
    live_variance: [1, 2, 3, 4, 5],
    allocated_bytes: [140, 60, 30, 7, 5],
    allocated_objects: [14, 6, 3, 7, 1],
    allocated_samples: [14, 6, 3, 7, 1],
    allocated_variance: zeros,
  };
  profile.blocks = {
    path: [0, 0, 0, 1, 2, 3],
    thread: [worker, main, main, worker, main, main],
    size: [10, 10, 20, 10, 1, 5],
    age: [60, 0, UNKNOWN_AGE, 60, 0, 604800],
    live_bytes: [40, 20, 40, 30, 7, 5],
    live_objects: [4, 4, 2, 3, 7, 1],
    live_samples: [4, 4, 2, 3, 7, 1],
    live_variance: [1, 1, 1, 3, 4, 5],
  };
  return profile;
}

const ALL_CLASSES: Filter = { thread: "", size: null, age: null };

// "name bytes objects", in the order of the data.
function classRows(by: "thread" | "size" | "age", filter: Partial<Filter> = {}, keeps: (path: number) => boolean = ALL): string[] {
  const rows = rowsByClass(divided(), by, "live", { ...ALL_CLASSES, ...filter }, keeps);
  return rows.map((row) => `${row.name} ${row.self.bytes} ${row.self.objects}`);
}

test("rows by thread, size and age add up to the paths", () => {
  deepStrictEqual(classRows("thread"), ["worker 70 7", "main thread 72 14"]);
  deepStrictEqual(classRows("size"), ["blocks of 10 bytes 90 11", "blocks of 20 bytes 40 2", "blocks of 1 bytes 7 7", "blocks of 5 bytes 5 1"]);
  deepStrictEqual(classRows("age"), ["1 min to 10 min 70 7", "younger than 1 s 27 11", "of unknown age 40 2", "older than 7 d 5 1"]);
  deepStrictEqual(classRows("size", {}, (path) => path === 0), ["blocks of 10 bytes 60 8", "blocks of 20 bytes 40 2"]);
  deepStrictEqual(classRows("thread", { size: 10 }), ["worker 70 7", "main thread 20 4"]);
  deepStrictEqual(classRows("age", { thread: "worker" }), ["1 min to 10 min 70 7"]);
  const allocated = rowsByClass(divided(), "thread", "allocated", ALL_CLASSES, ALL);
  deepStrictEqual(allocated.map((row) => row.self.bytes), [170, 72]);
  deepStrictEqual(rowsByClass(divided(), "age", "allocated", ALL_CLASSES, ALL), []);
  deepStrictEqual(rowsByClass(example(), "thread", "live", ALL_CLASSES, ALL), []);
});

test("a filtered profile has the same paths, with sums of what is left", () => {
  const profile = divided();
  strictEqual(filterProfile(profile, ALL_CLASSES), profile);
  const of = (filter: Partial<Filter>): Profile => filterProfile(divided(), { ...ALL_CLASSES, ...filter });
  const worker = of({ thread: "worker" });
  deepStrictEqual(worker.paths.live_bytes, [40, 30, 0, 0]);
  deepStrictEqual(worker.paths.live_variance, [1, 3, 0, 0]);
  deepStrictEqual(worker.paths.allocated_objects, [14, 3, 0, 0]);
  deepStrictEqual(worker.paths.stack, profile.paths.stack);
  deepStrictEqual(total(worker, "live"), { bytes: 70, objects: 7, samples: 7, variance: 4 });
  const both = of({ thread: "main thread", size: 10 });
  deepStrictEqual(both.paths.live_bytes, [20, 0, 0, 0]);
  deepStrictEqual(both.paths.allocated_bytes, [0, 0, 0, 0]);
  deepStrictEqual(of({ age: UNKNOWN_AGE }).paths.live_bytes, [40, 0, 0, 0]);
  deepStrictEqual(of({ thread: "main thread", size: 10, age: 60 }).paths.live_bytes, [0, 0, 0, 0]);
  deepStrictEqual(of({ thread: "nobody" }).paths.live_bytes, [0, 0, 0, 0]);
  // Texts of other things are no threads.
  deepStrictEqual(of({ thread: "main" }).paths.live_bytes, [0, 0, 0, 0]);
  deepStrictEqual(filterProfile(example(), { ...ALL_CLASSES, thread: "worker" }).paths.live_bytes, [0, 0, 0, 0]);
  deepStrictEqual(profile.paths.live_bytes, [100, 30, 7, 5]);
});

test("what a profile lacks", () => {
  strictEqual(lackOf(divided(), "thread") + lackOf(divided(), "size") + lackOf(divided(), "age"), "");
  const without = divided();
  without.blocks!.age.fill(UNKNOWN_AGE);
  strictEqual(lackOf(without, "size"), "");
  strictEqual(lackOf(without, "age").includes("ages"), true);
  strictEqual(lackOf(example(), "thread").includes("threads"), true);
  strictEqual(lackOf(example(), "size").includes("sizes"), true);
  const difference = divided();
  difference.subject.is_difference = true;
  strictEqual(lackOf(difference, "age").includes("difference"), true);
  strictEqual(lackFor(example(), ALL_CLASSES), "");
  strictEqual(lackFor(example(), { ...ALL_CLASSES, thread: "x", size: 1 }).includes("sizes"), true);
  strictEqual(lackFor(divided(), { thread: "x", size: 1, age: 0 }), "");
  strictEqual(needsLive(ALL_CLASSES, "thread"), false);
  strictEqual(needsLive({ ...ALL_CLASSES, age: 0 }, "thread") && needsLive(ALL_CLASSES, "size"), true);
});

test("names of ages are those of the report", () => {
  deepStrictEqual(AGES.map(ageText), [
    "younger than 1 s",
    "1 s to 10 s",
    "10 s to 1 min",
    "1 min to 10 min",
    "10 min to 1 h",
    "1 h to 6 h",
    "6 h to 1 d",
    "1 d to 7 d",
    "older than 7 d",
  ]);
  strictEqual(ageText(UNKNOWN_AGE), "of unknown age");
  strictEqual(ageText(2), "of unknown age");
});

test("a cut path is found by its known frames", () => {
  const profile = example();
  const { frames, stacks, paths, texts } = profile;
  const mark = frames.function.length;
  for (const column of [frames.function, frames.short]) column.push(texts.length);
  for (const column of [frames.file, frames.line, frames.library]) column.push(0);
  frames.flags.push(2);
  texts.push("[outer frames missing]");
  const root = stacks.frame.length;
  stacks.parent.push(-1, root);
  stacks.frame.push(mark, 3);
  paths.stack[0] = root + 1;
  const names = nameFrames(profile, "function", true);
  strictEqual(pathText(profile, names, 0), "b ← [outer frames missing]");
  strictEqual(hasPathText(profile, names, 0, "b"), true);
  strictEqual(hasPathText(profile, names, 0, "a"), false);
  strictEqual(hasPathText(profile, names, 3, "b ← main"), true);
  strictEqual(hasPathText(profile, names, 3, "b"), false);
});

test("rows by line, library and path", () => {
  const profile = example();
  const lines = nameFrames(profile, "line", true);
  strictEqual(lines.texts.includes("a a.c:20"), true);
  const libraries = rowsByName(profile, nameFrames(profile, "library", false), "live", ALL);
  deepStrictEqual(libraries.map((row) => `${row.name} ${row.self.bytes}`).sort(), ["[unknown call path] 7", "x 35", "y.so 100"]);
  const names = nameFrames(profile, "function", true);
  const paths = rowsByPath(profile, names, "live", ALL);
  strictEqual(pathText(profile, names, paths[0].number, 6), "a ← main");
  strictEqual(pathText(profile, names, 1, 2), "b ← b ← …");
  strictEqual(pathText(profile, names, 2, 2), "[unknown call path]");
});

test("rows of a difference know what was before, also where nothing changed", () => {
  const profile = example();
  profile.subject.is_difference = true;
  profile.paths.live_bytes = [100, 0, 0, -5];
  profile.paths.live_samples = [1, 0, 0, 1];
  profile.paths.before_bytes = [0, 30, 7, 5];
  profile.paths.before_objects = [0, 3, 7, 1];
  const names = nameFrames(profile, "function", true);
  const of = (rows: Row[], name: (row: Row) => string): string[] =>
    rows.map((row) => `${name(row)} ${row.total.bytes} ${row.before.bytes} ${fateOf(row.before, row.total)}`).sort();
  deepStrictEqual(
    of(rowsByName(profile, names, "live", ALL), (row) => row.name),
    ["a 100 0 new", "b -5 35 changed", "main 95 35 changed"],
  );
  deepStrictEqual(
    of(rowsByPath(profile, names, "live", ALL), (row) => pathText(profile, names, row.number, 6)),
    ["a ← main 100 0 new", "b ← main -5 5 vanished"],
  );
});

test("relative changes", () => {
  const text = (before: number, change: number): string => {
    const amount = (bytes: number): Amount => ({ bytes, objects: 0 });
    return relativeText(amount(before), amount(change), "bytes");
  };
  strictEqual(text(100, 50), "+50.0%");
  strictEqual(text(3000, -1000), "-33.3%");
  strictEqual(text(100, 0), "0.0%");
  strictEqual(text(1e6, -1), "0.0%");
  strictEqual(text(10, 1000), "+10000%");
  strictEqual(text(0, 5), "new");
  strictEqual(text(5, -5 + 1e-9), "vanished");
  strictEqual(text(0, 0), "-");
  strictEqual(relativeOrder({ bytes: 0, objects: 0 }, { bytes: 1, objects: 1 }, "bytes"), Infinity);
  strictEqual(relativeOrder({ bytes: 4, objects: 0 }, { bytes: 1, objects: 0 }, "objects"), 0);
});

// The same program in another process: other numbers of texts and frames, other folders and lines. a has grown, the
// last frame of b is gone, c is new, and what has no path is as it was.
function exampleBefore(): Profile {
  const zeros = [0, 0, 0, 0];
  return {
    ...example(),
    subject: { name: "y", pid: 7, period: 1024, resident_bytes: 5, warnings: ["odd"], is_difference: false, has_allocated: true },
    texts: ["", "b", "/other/x", "/other/y.so", "std::x<int>", "main", "a", "c"],
    frames: {
      function: [1, 4, 5, 6, 7],
      short: [1, 4, 5, 6, 7],
      file: [0, 0, 0, 0, 0],
      line: [0, 0, 0, 99, 0],
      library: [2, 3, 2, 2, 2],
      flags: [2, 2, 2, 2, 2],
    },
    stacks: { parent: [-1, 0, 1, 0, 0], frame: [2, 3, 1, 0, 4] },
    paths: {
      stack: [-1, 2, 3, 4],
      truncated: [0, 1, 0, 0],
      live_bytes: [7, 40, 5, 9],
      live_objects: [7, 4, 2, 9],
      live_samples: [7, 4, 2, 9],
      live_variance: [1, 4, 2, 9],
      allocated_bytes: zeros,
      allocated_objects: zeros,
      allocated_samples: zeros,
      allocated_variance: zeros,
    },
  };
}

test("the difference of two processes", () => {
  const after = example();
  after.paths.live_variance = [16, 3, 7, 1];
  after.subject.time = 1000;
  const before = exampleBefore();
  const copies = JSON.stringify([after, before]);
  const difference = differenceOf(after, before);
  strictEqual(JSON.stringify([after, before]), copies);
  const { paths, subject } = difference;
  const names = nameFrames(difference, "function", false);
  const shown = paths.stack.map((_, path) =>
    [pathText(difference, names, path, 6), paths.live_bytes[path], paths.live_objects[path], paths.live_samples[path],
     paths.live_variance[path], paths.before_bytes?.[path], paths.before_objects?.[path], paths.truncated[path]].join(" "),
  );
  deepStrictEqual(shown, [
    "std::x<int> ← a ← main 60 6 14 20 40 4 1",
    "b ← b ← main 30 3 3 3 0 0 0",
    "[unknown call path] 0 0 0 0 7 7 0", // the same in both
    "b ← main 0 -1 3 3 5 2 0", // other objects
    "c ← main -9 -9 9 9 9 9 0",
  ]);
  deepStrictEqual(paths.allocated_bytes, [0, 0, 0, 0, 0]);
  deepStrictEqual(subject, {
    name: "x compared with y", pid: null, period: 1, resident_bytes: null, warnings: ["y: odd"], is_difference: true, has_allocated: true, time: 1000,
  });
  strictEqual(difference.texts[0], "");
});

test("frames without a symbol are places in one file", () => {
  const [after, before] = [example(), exampleBefore()];
  after.frames.flags = [0, 0, 0, 0];
  before.frames.flags = [0, 0, 0, 0, 0];
  const difference = differenceOf(after, before);
  strictEqual(difference.paths.stack.length, after.paths.stack.length + before.paths.stack.length - 1);
  deepStrictEqual(
    differenceOf(after, after).paths.live_samples.filter((samples) => samples !== 0),
    [],
  );
});

test("paths of one profile that differ in lines only are one path of a difference", () => {
  const after = example();
  after.texts[5] = "a"; // b, at another line of the same file
  after.stacks = { parent: [-1, 0, 0], frame: [0, 1, 3] };
  after.paths.stack = [1, 2, -1, 0];
  const difference = differenceOf(after, { ...exampleBefore(), paths: { ...exampleBefore().paths, stack: [] } });
  deepStrictEqual(difference.paths.live_bytes, [130, 7, 5]);
});

// Seconds of processor time for a difference of this many stacks. A busy machine takes longer, but not more of it.
function costOfDifference(count: number): number {
  const profile = example();
  profile.stacks = { parent: [], frame: [] };
  for (let i = 0; i < count; i++) {
    profile.stacks.parent.push(i % 50 === 0 ? -1 : i - 1);
    profile.stacks.frame.push((i * 7 + Math.floor(i / 50)) % 4);
  }
  const columns = profile.paths as unknown as { [name: string]: number[] };
  for (const name of Object.keys(columns)) columns[name] = new Array(count).fill(1);
  profile.paths.stack = Array.from({ length: count }, (_, i) => i);
  const begin = process.cpuUsage();
  const difference = differenceOf(profile, { ...profile, paths: { ...profile.paths, live_bytes: new Array(count).fill(3) } });
  const used = process.cpuUsage(begin);
  strictEqual(difference.paths.live_bytes.reduce((sum, bytes) => sum + bytes, 0), -2 * count);
  return (used.user + used.system) / 1e6;
}

// Ten times the stacks take ten times the time, or a hundred times if each is compared with all others.
test("a large difference takes linear time", () => {
  costOfDifference(20000); // compiles the code
  const small = costOfDifference(20000);
  strictEqual(costOfDifference(200000) / small < 40, true);
});

test("processes by name, unit or control group", () => {
  const web = { command: "python3", executable: "/usr/bin/python3", service: "web", control_group: "/system.slice/web.service" };
  const pod = { command: "app", executable: "/app", service: null, control_group: "/kubepods/pod1/cri-0123.scope" };
  const old = { command: "OLD", executable: "" };
  const found = (word: string): number[] => [web, pod, old].flatMap((one, i) => (matches(one, word) ? [i] : []));
  deepStrictEqual(found("PYTHON"), [0]);
  deepStrictEqual(found("web"), [0]);
  deepStrictEqual(found("pod1"), [1]);
  deepStrictEqual(found("old"), [2]);
  deepStrictEqual(found(""), [0, 1, 2]);
  deepStrictEqual([web, pod, { service: undefined }, { control_group: "/" }].map(placeOf), ["web", "cri-0123.scope", "", ""]);
});

test("the interval of a history is the usual one, within bounds", () => {
  const of = (...times: number[]): number =>
    intervalOf({ points: times.map((time) => ({ time })) } as unknown as History);
  strictEqual(of(0, 10, 20, 500, 510), 10);
  strictEqual(of(0, 0.1, 0.2), 1);
  strictEqual(of(0, 4000, 8000), 60);
  strictEqual(of(7), 5);
});

test("the mean size is that of blocks, which a difference does not have", () => {
  const measure = { bytes: 3 << 20, objects: 3, samples: 3, variance: 0 };
  strictEqual(meanSize(measure, false), "1.0M");
  strictEqual(meanSize(measure, true), null);
  strictEqual(meanSize({ ...measure, objects: 0 }, false), null);
});

test("figures", () => {
  const texts: [number, string][] = [
    [0, "0"],
    [1023, "1023"],
    [1024, "1.0K"],
    [1536, "1.5K"],
    [1048575, "1.0M"],
    [-2048, "-2.0K"],
    [3e9, "2.8G"],
    [1023.4, "1023"],
    [1023.6, "1.0K"],
    [1023.6 * 1024, "1023.6K"],
    [1023.96 * 1024, "1.0M"],
  ];
  for (const [value, text] of texts) strictEqual(format.bytes(value), text);
  strictEqual(format.signed(5, "objects", true), "+5");
  strictEqual(format.percent(1, 0), "-");
  strictEqual(format.plural(1, "sample"), "1 sample");
  strictEqual(format.isNoise({ bytes: 10, objects: 1, samples: 1, variance: 36 }), true);
  strictEqual(format.isNoise({ bytes: 10, objects: 1, samples: 1, variance: 0 }), false);
  strictEqual(format.duration(3700), "1h");
});

test("the address holds the state", () => {
  strictEqual(toHash(DEFAULTS), "");
  const state = fromHash("#view=bottom-up&unit=objects&zoom=0.3.1&focus=a%26b&search=x%2B&full=true&pid=42&span=day&at=1790000000.5&from=17");
  deepStrictEqual([state.span, state.at, state.from], ["day", 1790000000.5, 17]);
  strictEqual(state.view, "bottom-up");
  deepStrictEqual(state.zoom, [0, 3, 1]);
  strictEqual(state.focus, "a&b");
  strictEqual(state.full, true);
  deepStrictEqual(fromHash(`#${toHash(state)}`), state);
  strictEqual(fromHash("#running=true&path=a%20%E2%86%90%20b").running, true);
  strictEqual(fromHash("#running=true&path=a%20%E2%86%90%20b").path, "a ← b");
  const filtered = fromHash("#thread=%3Cb%3E&size=1024&age=-1&table=age");
  deepStrictEqual([filtered.thread, filtered.size, filtered.age, filtered.table], ["<b>", 1024, -1, "age"]);
  deepStrictEqual(fromHash(`#${toHash(filtered)}`), filtered);
  strictEqual(toHash({ ...DEFAULTS, size: 0, age: 0 }), "size=0&age=0");
  deepStrictEqual(fromHash("#size=-1&age=7&thread="), { ...DEFAULTS, zoom: [] });
  for (const base of ["17", "choose"]) strictEqual(fromHash(`#pid=1&base=${base}`).base, base);
  for (const base of ["-1", "1x", "99999999999", ""]) strictEqual(fromHash(`#pid=1&base=${base}`).base, "");
  deepStrictEqual(fromHash("#view=x&zoom=1..2&unit=&value=__proto__&nonsense"), { ...DEFAULTS, zoom: [] });
});

test("layers of a timeline: the largest peak first, all others last", () => {
  const point = (time: number) => ({ time, processes: 1, live_bytes: 0, rss_bytes: null, limit_bytes: null });
  const frame = (name: string) => ({ short: name.replace("*", ""), folded: name.endsWith("*") });
  const history: History = {
    name: "x",
    since: null,
    until: 30,
    processes: [],
    points: [point(10), point(20), point(30)],
    paths: [
      { id: 1, frames: ["std::allocate*", "f", "main"].map(frame) },
      { id: 2, frames: [frame("x.so+0x10")] },
      { id: 3, frames: ["a", "b", "c", "d", "e"].map(frame) },
      { id: 4, frames: ["std::resize*", "std::allocate*", "f", "main", "start*"].map(frame) }, // 1 to a reader
      { id: 5, frames: ["std::allocate*", "start*"].map(frame) }, // nothing else is known of it
    ],
    rows: [
      [0, 1, 100, 1, 1],
      [1, 1, 50, 1, 1],
      [1, 2, 500, 1, 1],
      [2, 3, 7, 1, 1],
      [1, 4, 25, 1, 1],
      [2, 5, 1, 1, 1],
      [2, 0, 1e6, 1, 1],
      [9, 1, 1e9, 1, 1], // no such point
    ],
    marks: [],
  };
  const layers = layersOf(history);
  deepStrictEqual(
    layers.map((layer) => [layer.name, layer.path, [...layer.bytes]]),
    [
      ["x.so+0x10", "x.so+0x10", [0, 500, 0]],
      ["f ← main", "f ← main", [100, 75, 0]],
      ["a ← b ← c ← d ← …", "a ← b ← c ← d ← e", [0, 0, 7]],
      ["std::allocate ← start", "std::allocate ← start", [0, 0, 1]],
      [OTHERS, "", [0, 0, 1e6]],
    ],
  );
  const many = Array.from({ length: 9 }, (_, i) => i + 1);
  const crowded = layersOf({
    ...history,
    paths: many.map((id) => ({ id, frames: [frame(`f${id}`)] })),
    rows: many.map((id) => [0, id, id, 1, 1]),
  });
  deepStrictEqual(
    crowded.map((layer) => [layer.name, layer.bytes[0]]),
    [...[9, 8, 7, 6, 5, 4].map((id) => [`f${id}`, id]), [OTHERS, 1 + 2 + 3]],
  );
  const renamed = { ...history, paths: history.paths.map((path) => ({ ...path, frames: [frame(`new ${path.id}`)] })) };
  strictEqual(renamedPath(history, renamed, "x.so+0x10"), `new ${history.paths.find(({ frames }) => frames[0].short === "x.so+0x10")?.id}`);
  for (const path of ["", "of no layer"]) strictEqual(renamedPath(history, renamed, path), path);
  strictEqual(renamedPath(history, { ...history, paths: [] }, "f ← main"), "f ← main");
  strictEqual(nearest(history, 24), 1);
  // The axis is the chosen span, not that of the points; all of the history has its own length.
  deepStrictEqual(axisOf({ ...history, since: -3000, until: 600 }), { begin: -3000, end: 600 });
  deepStrictEqual(axisOf({ ...history, since: -3000, until: 29 }), { begin: -3000, end: 30 });
  deepStrictEqual(axisOf({ ...history, since: null, until: 600 }), { begin: 10, end: 30 });
  deepStrictEqual(axisOf({ ...history, points: [point(10)], since: null, until: 600 }), { begin: 10, end: 11 });
  strictEqual(nearest({ ...history, points: [] }, 24), -1);
  strictEqual(momentAddress({ ...DEFAULTS, pid: "7", at: 5 }, 9), "/history/profile.json?pid=7&at=5");
  strictEqual(momentAddress({ ...DEFAULTS, service: "a&b", from: 3 }, 9), "/history/profile.json?name=a%26b&at=9&from=3");
});

test("resident memory of a process", () => {
  deepStrictEqual([{ resident_bytes: 3 * 1048576 }, { resident_bytes: 0 }, { resident_bytes: null }, {}].map(residentText), ["3.0M", "0", "-", "-"]);
});

test("growth of a process, with what is known of its error", () => {
  const growth = { growth_per_minute: 3 * 1048576, growth_error: 1048576, growth_seconds: 600 };
  strictEqual(growthText(growth), "+3.0M");
  strictEqual(growthHint(growth), "+3.0M ± 1.0M per minute, over the last 10m");
  strictEqual(growthText({ ...growth, growth_error: 2 * 1048576 }), "+3.0M ~");
  strictEqual(growthText({ ...growth, growth_per_minute: -100, growth_error: 0 }), "-100");
  for (const unknown of [{}, { growth_per_minute: null }, { ...growth, ended: "2026-01-01T00:00:00Z" }]) strictEqual(growthText(unknown), "-");
});

test("rows are sorted by any column", () => {
  const columns = [
    { key: "n", title: "", isNumber: true, text: String, order: (row: number) => row },
    { key: "s", title: "", isNumber: false, text: String, order: (row: number) => String(row) },
  ];
  deepStrictEqual(sortRows([9, 10, 1], columns, { key: "n", isAscending: false }), [10, 9, 1]);
  deepStrictEqual(sortRows([9, 10, 1], columns, { key: "s", isAscending: true }), [1, 10, 9]);
  deepStrictEqual(sortRows([9, 10, 1], columns, { key: "none", isAscending: true }), [1, 9, 10]);
});
