// SPDX-License-Identifier: Apache-2.0
//
// What is known of one box: beside it, and for people who listen to the page.
import { make } from "./dom";
import { Anchor } from "./flame";
import * as format from "./format";
import { INLINE, Measure } from "./profile";
import { meanSize, Scene } from "./scene";
import { isMixed, Tree } from "./tree";

// Ages take a pass over all paths and blocks, so they wait until the pointer has rested for this many milliseconds.
const REST = 60;

export class Tooltip {
  readonly element = make("div", { class: "tooltip", role: "tooltip" });

  // Screen readers say what changes in it.
  readonly announcer = make("div", { class: "unseen", role: "status", "aria-live": "polite" });

  private waiting = 0;

  hide(): void {
    window.clearTimeout(this.waiting);
    this.element.hidden = true;
  }

  announce(scene: Scene, tree: Tree, node: number): void {
    const facts = factsOf(scene, tree, node).map(([name, text]) => `${name} ${text}`);
    const level = `level ${tree.depth[node] + 1}`;
    const text = [nameOf(scene, tree, node), ...facts, level].join(", ");
    if (this.announcer.textContent !== text) this.announcer.textContent = text;
  }

  // Shows the tooltip inside the window. `ages`: how old the blocks of the box are; null: unknown.
  show(scene: Scene, tree: Tree, node: number, anchor: Anchor, ages: (() => string) | null): void {
    window.clearTimeout(this.waiting);
    this.element.hidden = false;
    const list = make("dl", {});
    for (const [name, text] of factsOf(scene, tree, node)) list.append(make("dt", {}, name), make("dd", {}, text));
    if (ages !== null) {
      const text = make("dd", {}, "…");
      list.append(make("dt", {}, "age"), text);
      this.waiting = window.setTimeout(() => (text.textContent = ages()), REST);
    }
    const places = placesOf(scene, tree, node).map((text) => make("div", { class: "place" }, text));
    this.element.replaceChildren(make("strong", {}, nameOf(scene, tree, node)), ...places, list);
    const box = this.element.getBoundingClientRect();
    const above = anchor.above - box.height;
    const hasRoomBelow = anchor.below + box.height <= window.innerHeight;
    const top = anchor.prefersAbove ? (above >= 0 ? above : anchor.below) : hasRoomBelow ? anchor.below : above;
    this.element.style.left = `${Math.max(4, Math.min(anchor.left, window.innerWidth - box.width - 8))}px`;
    this.element.style.top = `${top}px`;
  }
}

// The whole name, which a box may shorten; for functions that differ in the shortened part, what they have in common.
function nameOf(scene: Scene, tree: Tree, node: number): string {
  if (node === 0) return "all call paths";
  const { frames, texts } = scene.profile;
  const frame = tree.frame[node];
  return scene.host.state.by === "library" || frame < 0 || isMixed(tree, node, "function") ? tree.texts[tree.name[node]] : texts[frames.function[frame]];
}

// What the calls of the box have in common.
function placesOf(scene: Scene, tree: Tree, node: number): string[] {
  const { frames, texts } = scene.profile;
  const frame = tree.frame[node];
  if (node === 0 || frame < 0) return [];
  const isLibrary = scene.host.state.by === "library";
  const file = texts[frames.file[frame]];
  const hasLines = !isLibrary && !isMixed(tree, node, "file") && file !== "";
  const line = isMixed(tree, node, "line") ? `${file}, several lines` : `${file}:${frames.line[frame]}`;
  const inlined = (frames.flags[frame] & INLINE) !== 0 && !isMixed(tree, node, "flags") ? "inlined" : "";
  const library = isMixed(tree, node, "library") ? "" : texts[frames.library[frame]];
  return [inlined, hasLines ? line : "", library].filter((text) => text !== "");
}

function factsOf(scene: Scene, tree: Tree, node: number): [string, string][] {
  const isDifference = scene.profile.subject.is_difference;
  const measure: Measure = {
    bytes: tree.bytes[node],
    objects: tree.objects[node],
    samples: tree.samples[node],
    variance: tree.variance[node],
  };
  const error = format.error(measure);
  const mean = meanSize(measure, isDifference);
  return [
    ["bytes", format.signed(measure.bytes, "bytes", isDifference) + (error > 0 ? ` ± ${format.bytes(error)}` : "")],
    ["share", format.percent(Math.abs(measure.bytes), Math.abs(tree.bytes[0]))],
    ["objects", format.signed(measure.objects, "objects", isDifference)],
    ...(mean === null ? [] : [["mean size", mean] as [string, string]]),
    ["samples", format.count(measure.samples) + (format.isNoise(measure) ? " (may be noise)" : "")],
  ];
}
