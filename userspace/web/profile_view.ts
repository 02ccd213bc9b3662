// SPDX-License-Identifier: Apache-2.0
//
// One profile: figures, flame graph, table. Everything is drawn again when the state changes.
import { make, selectorOf } from "./dom";
import { drawFates } from "./fates_pane";
import { GraphPane } from "./graph_pane";
import { Help } from "./help";
import { By, eachPath, nameFrames, Names, UNKNOWN_PATH } from "./names";
import { Profile } from "./profile";
import { makeHead } from "./profile_head";
import { Host, Keeps, Scene } from "./scene";
import { drawSearch } from "./search";
import { State } from "./state";
import { drawTable } from "./table_pane";
import { makeChips, makeToolbar } from "./toolbar";
import { Tooltip } from "./tooltip";

export class ProfileView {
  readonly element = make("main", { class: "profile" });
  private readonly tooltip = new Tooltip();
  readonly graphs = new GraphPane(this.tooltip);
  readonly help = new Help();
  private parts: HTMLElement[] = [];

  constructor(
    private readonly profile: Profile,
    private readonly host: Host,
  ) {
    // These stay: screen readers only follow a region that does.
    this.element.append(this.tooltip.element, this.tooltip.announcer, this.help.element);
    this.draw();
  }

  show(state: State, timeline: HTMLElement | null): void {
    this.host.state = state;
    this.host.timeline = timeline;
    this.draw();
  }

  draw(): void {
    const { state } = this.host;
    const names = nameFrames(this.profile, state.by, !state.full);
    const tableBy: By = state.table === "path" ? "function" : state.table;
    const tableNames = tableBy === state.by ? names : nameFrames(this.profile, tableBy, !state.full);
    const keeps = pathsThrough(this.profile, state.focus, [names, tableNames]);
    const scene: Scene = { profile: this.profile, host: this.host, names, tableNames, keeps };
    const held = this.graphs.held();
    const control = this.element.contains(document.activeElement) ? selectorOf(document.activeElement) : "";
    this.tooltip.hide();
    const graph = make("section", { class: "graph", "aria-label": "Flame graph" });
    const side = make("section", { class: "side", "aria-label": "Table" });
    for (const part of this.parts) part.remove();
    const { timeline } = this.host;
    this.parts = [
      makeHead(scene),
      ...(timeline === null ? [] : [timeline]),
      makeToolbar(scene, () => this.help.open()),
      make("div", { class: "panes" }, graph, side),
    ];
    this.element.prepend(...this.parts);
    const matches = make("output", { class: "matches", for: "search" });
    graph.append(makeChips(scene, matches));
    const inside = this.graphs.draw(graph, scene);
    drawTable(side, scene, inside);
    if (this.profile.subject.is_difference) drawFates(side, scene, inside);
    drawSearch(scene, matches, this.graphs.flames);
    if (held !== null) this.graphs.hold(held);
    else if (control !== "") this.element.querySelector<HTMLElement>(control)?.focus({ preventScroll: true });
  }
}

// Which paths go through the function, line or library with this name; "": all.
function pathsThrough(profile: Profile, focus: string, kinds: Names[]): Keeps {
  if (focus === "") return () => true;
  const kept = new Uint8Array(profile.paths.stack.length);
  for (const names of new Set(kinds)) {
    const number = names.texts.indexOf(focus);
    if (number < 0 && focus !== UNKNOWN_PATH) continue;
    eachPath(profile, names, (path, here, _frames, count) => {
      if (focus === UNKNOWN_PATH ? count === 0 : here.subarray(0, count).includes(number)) kept[path] = 1;
    });
  }
  return (path) => kept[path] === 1;
}
