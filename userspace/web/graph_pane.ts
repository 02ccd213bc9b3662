// SPDX-License-Identifier: Apache-2.0
//
// The flame graphs of a profile: one, or the two halves of a butterfly.
import { lackOf } from "./classes";
import { make } from "./dom";
import { FlameGraph } from "./flame";
import * as format from "./format";
import { eachPath, Names, STEP } from "./names";
import { HAS_SYMBOL, INLINE, Keeps, Profile } from "./profile";
import { Row, rowsByName } from "./rows";
import { emptinessOf, Scene } from "./scene";
import { rowsByClass } from "./shares";
import { Tooltip } from "./tooltip";
import { calleesOf, callersOf, makeTree, namesTo, nodeAt, nodeOfNames, positionsOf, Tree, wholePath } from "./tree";

export interface Flame {
  tree: Tree;
  graph: FlameGraph;
  isInwards: boolean;
}

// A box as text for other programs: its name, and the names from it to the outermost one that the graph has.
export interface Pointed {
  name: string;
  path: string;
}

export interface Held {
  number: number;
  names: string[];
  isShown: boolean;
}

export class GraphPane {
  flames: Flame[] = [];

  constructor(private readonly tooltip: Tooltip) {}

  // Where the keyboard is, before everything is drawn anew: the graph, and the names that lead to the box.
  held(): Held | null {
    for (const [number, { tree, graph }] of this.flames.entries()) {
      const cursor = graph.heldCursor();
      if (cursor === null) continue;
      const names = namesTo(tree, cursor.node).map((name) => tree.texts[name]);
      return { number, names, isShown: cursor.isShown };
    }
    return null;
  }

  // null: no box.
  pointed(): Pointed | null {
    for (const { tree, graph, isInwards } of this.flames) {
      const node = graph.pointed();
      if (node <= 0) continue;
      const names = namesTo(tree, node).map((name) => tree.texts[name]);
      const innermostFirst = isInwards ? [...names].reverse() : names;
      return { name: names[names.length - 1], path: innermostFirst.join(STEP) };
    }
    return null;
  }

  // Puts the keyboard where it was, as far as that is still drawn.
  hold(held: Held): void {
    const flame = this.flames[Math.min(held.number, this.flames.length - 1)];
    if (flame !== undefined) flame.graph.takeCursor(nodeOfNames(flame.tree, held.names), held.isShown);
  }

  // Draws the graphs; returns which paths are in the zoomed box.
  draw(place: HTMLElement, scene: Scene): Keeps {
    const { profile, names, keeps } = scene;
    const { state } = scene.host;
    this.flames = [];
    if (state.view === "butterfly") {
      this.drawButterfly(place, scene);
      return keeps;
    }
    const isInwards = state.view === "icicle";
    const direction = isInwards ? "inwards" : "outwards";
    const tree = makeTree(profile, names, { ...state, direction, cut: wholePath, keeps });
    this.add(place, scene, "Flame graph", tree, isInwards, state.zoom);
    const zoomed = nodeAt(tree, state.zoom);
    return zoomed === 0 ? keeps : pathsBelow(profile, names, namesTo(tree, zoomed), isInwards, keeps);
  }

  private drawButterfly(place: HTMLElement, scene: Scene): void {
    const { profile, names, keeps } = scene;
    const { state } = scene.host;
    const rows = rowsByName(profile, names, state.value, keeps).filter((row) => row.number >= 0);
    const heaviest = rows.reduce<Row | null>(
      (best, row) => (best === null || Math.abs(row.self[state.unit]) > Math.abs(best.self[state.unit]) ? row : best),
      null,
    );
    const focused = names.texts.indexOf(state.focus);
    const name = focused >= 0 ? focused : (heaviest?.number ?? -1);
    if (name < 0) {
      place.append(make("p", { class: "empty" }, emptinessOf(scene) || "No call path has a name here."));
      return;
    }
    place.append(make("h2", {}, "Callers of ", make("code", {}, names.texts[name])));
    const options = { value: state.value, unit: state.unit, keeps };
    const callers = makeTree(profile, names, { ...options, direction: "outwards", cut: callersOf(name) });
    this.add(place, scene, `Callers of ${names.texts[name]}`, callers, false, []);
    place.append(make("h2", {}, "Called by ", make("code", {}, names.texts[name])));
    const callees = makeTree(profile, names, { ...options, direction: "inwards", cut: calleesOf(name) });
    this.add(place, scene, `Called by ${names.texts[name]}`, callees, true, []);
  }

  private add(place: HTMLElement, scene: Scene, label: string, tree: Tree, isInwards: boolean, zoom: number[]): void {
    if (tree.size === 1) {
      place.append(make("p", { class: "empty" }, emptinessOf(scene) || "Nothing to show: no call path has such memory."));
      return;
    }
    const { frames, texts, subject } = scene.profile;
    const { by, unit } = scene.host.state;
    const flags = (node: number): number => (tree.frame[node] < 0 ? HAS_SYMBOL : frames.flags[tree.frame[node]]);
    const graph = new FlameGraph(
      tree,
      {
        label: `${label}. Arrow keys move from box to box, Enter zooms, Escape goes back.`,
        rootText: `all   ${format.signed(tree[unit][0], unit, subject.is_difference)}`,
        isFlipped: scene.host.state.view === "butterfly" && !isInwards,
        isDifference: subject.is_difference,
        colorOf: (node) => (tree.frame[node] < 0 ? "" : groupOf(tree.texts[tree.name[node]], texts[frames.library[tree.frame[node]]])),
        textOf: (node) => tree.texts[tree.name[node]],
        isMarked: (node) => (flags(node) & INLINE) !== 0 && by !== "library",
      },
      {
        hover: (node, anchor) => (node === null ? this.tooltip.hide() : this.tooltip.show(scene, tree, node, anchor, agesOf(scene, tree, node))),
        arrive: (node, anchor) => {
          this.tooltip.show(scene, tree, node, anchor, agesOf(scene, tree, node));
          this.tooltip.announce(scene, tree, node);
        },
        choose: (node) => choose(scene, tree, node),
      },
    );
    place.append(graph.element);
    this.flames.push({ tree, graph, isInwards });
    graph.zoom(nodeAt(tree, zoom), false);
  }
}

// The range of ages that most of a box's memory has, and its share; null: the profile, or the view, does not tell.
function agesOf(scene: Scene, tree: Tree, node: number): (() => string) | null {
  const { profile, whole, names, keeps, host } = scene;
  const { view, value } = host.state;
  if (view === "butterfly" || value !== "live" || lackOf(whole, "age") !== "") return null;
  return () => {
    const inside = node === 0 ? keeps : pathsBelow(profile, names, namesTo(tree, node), view === "icicle", keeps);
    const rows = rowsByClass(profile, "age", value, host.state, inside).sort((a, b) => b.self.bytes - a.self.bytes);
    if (rows.length === 0) return "-";
    const all = rows.reduce((sum, row) => sum + row.self.bytes, 0);
    return rows[0].name + (rows.length === 1 ? "" : ` (${format.percent(rows[0].self.bytes, all)})`);
  };
}

function choose(scene: Scene, tree: Tree, node: number): void {
  const { host } = scene;
  if (host.state.view !== "butterfly") host.change({ zoom: positionsOf(tree, node) });
  else if (node > 0) host.change({ focus: tree.texts[tree.name[node]] });
}

// Functions of one class or namespace have similar colours; otherwise, functions of one library do.
function groupOf(name: string, library: string): string {
  const end = name.indexOf("::");
  return end > 0 ? name.slice(0, end) : library;
}

// The paths that begin, or end, with these names.
function pathsBelow(profile: Profile, names: Names, prefix: number[], isInwards: boolean, keeps: Keeps): Keeps {
  const kept = new Uint8Array(profile.paths.stack.length);
  eachPath(profile, names, (path, here, _frames, count) => {
    if (!keeps(path) || count < prefix.length) return;
    const at = (i: number): number => here[isInwards ? i : count - 1 - i];
    if (prefix.every((name, i) => at(i) === name)) kept[path] = 1;
  });
  return (path) => kept[path] === 1;
}
