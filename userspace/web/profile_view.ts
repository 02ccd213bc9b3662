// SPDX-License-Identifier: Apache-2.0
//
// One profile: figures, flame graph, table. Everything is drawn again when the state changes.
import { arrange } from "./arrange";
import { Filter, lackFor, lackOf, needsLive } from "./classes";
import { Copier } from "./copy";
import { make, selectorsOf } from "./dom";
import { drawFates } from "./fates_pane";
import { makeChips } from "./filters";
import { GraphPane } from "./graph_pane";
import { Help } from "./help";
import { By, eachPath, nameFrames, Names, UNKNOWN_PATH } from "./names";
import { Keeps, lackOfValue, Profile } from "./profile";
import { makeHead } from "./profile_head";
import { hasPathText } from "./rows";
import { Host, Scene } from "./scene";
import { drawSearch } from "./search";
import { SearchField } from "./search_field";
import { filterProfile } from "./shares";
import { makeSplit } from "./split";
import { State } from "./state";
import { classOf, drawTable } from "./table_pane";
import { makeChoices } from "./toolbar";
import { Tooltip } from "./tooltip";

export class ProfileView {
  readonly element = make("main", { class: "profile" });
  private readonly tooltip = new Tooltip();
  readonly graphs = new GraphPane(this.tooltip);
  readonly help = new Help();
  private readonly copier = new Copier();
  private readonly search = new SearchField((text) => this.host.change({ search: text }));
  private readonly choices = make("div", { class: "choices" });
  private readonly toolbar = make(
    "div",
    { class: "toolbar" },
    this.choices,
    this.search.element,
    make("button", { type: "button", id: "help", class: "round", title: "Keys and marks", "aria-label": "Help", click: () => this.help.open() }, "?"),
  );
  private parts: HTMLElement[] = []; // above and below the toolbar
  private filtered: { key: string; profile: Profile } | null = null;
  private readonly depths = new Map<string, number>();

  constructor(
    private readonly profile: Profile,
    private host: Host,
  ) {
    // These elements stay: screen readers follow only a region that does.
    this.element.append(this.toolbar, this.tooltip.element, this.tooltip.announcer, this.help.element, this.copier.element);
    this.draw();
  }

  show(changes: Partial<Host>): void {
    this.host = { ...this.host, ...changes };
    this.draw();
  }

  // The name of the box or the row that the keyboard or the mouse is on, or its call path.
  copy(what: "name" | "path"): void {
    const row = this.element.querySelector("tr[data-row]:focus td.name, tr[data-row]:hover td.name");
    void this.copier.copy(row?.getAttribute("title") ?? this.graphs.pointed()?.[what] ?? null);
  }

  draw(): void {
    const whole = this.profile;
    const state = possibleState(whole, this.host.state);
    const profile = this.filter(state);
    const names = nameFrames(profile, state.by, !state.full);
    const tableBy: By = state.table === "line" || state.table === "library" ? state.table : "function";
    const tableNames = tableBy === state.by ? names : nameFrames(profile, tableBy, !state.full);
    const keeps = keptPaths(profile, state, [names, tableNames]);
    const host: Host = { ...this.host, state };
    const scene: Scene = { profile, whole, lack: lackFor(whole, state), host, names, tableNames, keeps };
    const held = this.graphs.held();
    const controls = this.element.contains(document.activeElement) ? selectorsOf(document.activeElement) : [];
    this.tooltip.hide();
    this.help.explain(whole.subject.coverage ?? []);
    const graph = make("section", { class: "graph", "aria-label": "Flame graph" });
    const side = make("section", { class: "side", "aria-label": "Table" });
    for (const part of this.parts) part.remove();
    const { timeline } = host;
    const above = [makeHead(scene), ...(timeline === null ? [] : [timeline])];
    const panes = make("div", { class: whole.subject.is_difference ? "panes difference" : "panes" }, graph);
    arrange(panes, this.depth(state, names) + 1);
    panes.append(makeSplit(panes, side), side);
    this.parts = [...above, panes];
    this.toolbar.before(...above);
    this.toolbar.after(panes);
    this.choices.replaceChildren(...makeChoices(scene));
    this.search.show(state.search);
    const matches = make("output", { class: "matches", for: "search" });
    graph.append(makeChips(scene, matches));
    const inside = this.graphs.draw(graph, scene);
    drawTable(side, scene, inside);
    if (this.profile.subject.is_difference) drawFates(side, scene, inside);
    drawSearch(scene, matches, this.graphs.flames);
    if (held === null) this.focus(controls);
    else if (this.graphs.flames.length > 0) this.graphs.hold(held);
    else this.focus(["[data-chip]"]); // nothing is left to draw
  }

  // The last filtered profile is kept: most changes do not touch the filter.
  private filter(filter: Filter): Profile {
    const key = JSON.stringify([filter.thread, filter.size, filter.age]);
    if (this.filtered?.key !== key) this.filtered = { key, profile: filterProfile(this.profile, filter) };
    return this.filtered.profile;
  }

  // The depth of the longest path, whatever is filtered.
  private depth({ by, full }: State, names: Names): number {
    const key = `${by} ${full}`;
    let depth = this.depths.get(key);
    if (depth === undefined) {
      depth = 0;
      eachPath(this.profile, names, (_path, _here, _frames, count) => (depth = Math.max(depth ?? 0, count)));
      this.depths.set(key, depth);
    }
    return depth;
  }

  // Focuses the first control that is there.
  private focus(selectors: string[]): void {
    for (const selector of selectors) {
      const control = this.element.querySelector<HTMLElement>(selector);
      if (control === null) continue;
      control.focus({ preventScroll: true });
      if (control.closest("tr") !== null) control.scrollIntoView({ block: "nearest" });
      return;
    }
  }
}

// The state as far as this profile has what it asks for.
function possibleState(profile: Profile, state: State): State {
  const by = classOf(state.table);
  const possible: State = { ...state, table: by !== null && lackOf(profile, by) !== "" ? "function" : state.table };
  if (needsLive(possible, possible.table) || lackOfValue(profile, possible.value) !== "") possible.value = "live";
  return possible;
}

// Which paths the state asks for.
function keptPaths(profile: Profile, state: State, kinds: Names[]): Keeps {
  const through = pathsThrough(profile, state.focus, kinds);
  if (state.path === "") return through;
  // Whatever the boxes are, a path has the functions of a layer of the timeline.
  const names = nameFrames(profile, "function", true);
  return (path) => through(path) && hasPathText(profile, names, path, state.path);
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
