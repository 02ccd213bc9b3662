// SPDX-License-Identifier: Apache-2.0
//
// One profile: figures, flame graph, table. Everything is drawn again when the state changes.
import { choice, make } from "./dom";
import { FlameGraph } from "./flame";
import * as format from "./format";
import { By, eachPath, nameFrames, Names, UNKNOWN_PATH } from "./names";
import { HAS_SYMBOL, INLINE, Measure, Profile, total, Unit, Value } from "./profile";
import { pathText, Row, rowsByName, rowsByPath } from "./rows";
import { State, Table, View } from "./state";
import { Column, makeTable } from "./table";
import { calleesOf, callersOf, childrenOf, makeTree, namesTo, nodeAt, positionsOf, Tree, wholePath } from "./tree";

export interface Host {
  state: State;
  change(part: Partial<State>): void;
  back: (() => void) | null; // to the table of processes
}

export interface Graphs {
  flames: { tree: Tree; graph: FlameGraph }[];
}

function compile(text: string): RegExp | null {
  try {
    return new RegExp(text, "i");
  } catch {
    return null;
  }
}

// Functions of one class or namespace have similar colours, else those of one library.
function groupOf(name: string, library: string): string {
  const end = name.indexOf("::");
  return end > 0 ? name.slice(0, end) : library;
}

export class ProfileView {
  readonly element = make("main", { class: "profile" });
  readonly graphs: Graphs = { flames: [] };
  private readonly tooltip = make("div", { class: "tooltip", role: "tooltip" });
  private names: Names;
  private tableNames: Names;
  private readonly isDifference: boolean;

  constructor(
    private readonly profile: Profile,
    private readonly host: Host,
  ) {
    this.isDifference = profile.subject.is_difference;
    this.names = nameFrames(profile, host.state.by, !host.state.full);
    this.tableNames = this.names;
    this.draw();
  }

  show(state: State): void {
    this.host.state = state;
    this.draw();
  }

  draw(): void {
    const state = this.host.state;
    this.names = nameFrames(this.profile, state.by, !state.full);
    const tableBy: By = state.table === "path" ? "function" : state.table;
    this.tableNames = tableBy === state.by ? this.names : nameFrames(this.profile, tableBy, !state.full);
    this.tooltip.hidden = true;
    const keeps = this.filter();
    const graph = make("section", { class: "graph", "aria-label": "Flame graph" });
    const side = make("section", { class: "side", "aria-label": "Table" });
    this.element.replaceChildren(
      this.head(),
      this.toolbar(),
      make("div", { class: "panes" }, graph, side),
      this.tooltip,
    );
    const inside = this.drawGraph(graph, keeps);
    this.drawTable(side, inside);
    this.drawSearch(keeps);
  }

  // Which paths go through the focus.
  private filter(): (path: number) => boolean {
    const focus = this.host.state.focus;
    if (focus === "") return () => true;
    const kept = new Uint8Array(this.profile.paths.stack.length);
    for (const names of new Set([this.names, this.tableNames])) {
      const number = names.texts.indexOf(focus);
      if (number < 0 && focus !== UNKNOWN_PATH) continue;
      eachPath(this.profile, names, (path, here, _frames, count) => {
        if (focus === UNKNOWN_PATH ? count === 0 : here.subarray(0, count).includes(number)) kept[path] = 1;
      });
    }
    return (path) => kept[path] === 1;
  }

  private head(): HTMLElement {
    const { subject } = this.profile;
    const { value, unit } = this.host.state;
    const sum = total(this.profile, value);
    const facts = make("dl", { class: "facts" });
    const add = (name: string, text: string, detail: string): void => {
      facts.append(
        make("div", {}, make("dt", {}, name), make("dd", {}, text), make("dd", { class: "detail" }, detail)),
      );
    };
    const error = format.error(sum);
    const what = this.isDifference ? "Change of live memory" : value === "live" ? "Live" : "Allocated";
    add(
      what,
      format.signed(sum.bytes, "bytes", this.isDifference),
      error > 0 ? `± ${format.bytes(error)} standard error` : "exact",
    );
    add("Objects", format.signed(sum.objects, "objects", this.isDifference), `mean ${this.mean(sum)}`);
    add(
      "Samples",
      format.count(sum.samples),
      subject.period > 1 ? `one every ${format.bytes(subject.period)}` : "every allocation",
    );
    if (subject.resident_bytes !== null && value === "live" && unit === "bytes") {
      const share = Math.max(0, Math.min(1, sum.bytes / subject.resident_bytes));
      const bar = make("div", { class: "coverage", role: "img", "aria-label": "live share of resident memory" });
      bar.style.setProperty("--share", `${100 * share}%`);
      facts.append(
        make(
          "div",
          {},
          make("dt", {}, "Resident"),
          make("dd", {}, format.bytes(subject.resident_bytes)),
          make("dd", { class: "detail" }, bar, `${format.percent(sum.bytes, subject.resident_bytes)} is live heap`),
        ),
      );
    }
    const header = make("header", {});
    if (this.host.back !== null) {
      header.append(make("button", { type: "button", class: "back", click: this.host.back }, "← Processes"));
    }
    // Folders of dumps say little, and take the room of the figures.
    const short = subject.name.replace(/(^|\s)\S*\//g, "$1");
    header.append(make("h1", { title: subject.name }, short), facts);
    if (subject.pid !== null && this.host.back !== null) header.append(this.downloads(subject.pid));
    if (subject.warnings.length > 0) {
      const list = make("ul", {}, ...subject.warnings.map((warning) => make("li", {}, warning)));
      header.append(
        make("details", { class: "warnings" }, make("summary", {}, format.plural(subject.warnings.length, "warning")), list),
      );
    }
    return header;
  }

  // The process's other documents, for other tools.
  private downloads(pid: number): HTMLElement {
    const links: [string, string][] = [
      ["heap", "heap_v2"],
      ["debug/pprof/heap", "pprof"],
      ["collapsed", "collapsed"],
      ["jeprof", "jeprof with names"],
      ["mtev/memory.json", "allocator"],
    ];
    return make("nav", { "aria-label": "Other formats" }, ...links.map(([path, name]) => make("a", { href: `/pid/${pid}/${path}` }, name)));
  }

  private mean(measure: Measure): string {
    return measure.objects === 0 ? "-" : format.bytes(Math.abs(measure.bytes / measure.objects));
  }

  private toolbar(): HTMLElement {
    const { state } = this.host;
    const reset: Partial<State> = { zoom: [] };
    const search = make("input", {
      type: "search",
      id: "search",
      placeholder: "Search (regular expression)   /",
      "aria-label": "Search",
      value: state.search,
      input: (event) => {
        state.search = (event.target as HTMLInputElement).value;
        this.host.change({ search: state.search });
      },
    });
    const bar = make(
      "div",
      { class: "toolbar" },
      choice<Value>(
        "Measure",
        this.isDifference
          ? [["live", "Live"]]
          : [
              ["live", "Live"],
              ["allocated", "Allocated"],
            ],
        state.value,
        (value) => this.host.change({ value, ...reset }),
      ),
      choice<Unit>(
        "Unit",
        [
          ["bytes", "Bytes"],
          ["objects", "Objects"],
        ],
        state.unit,
        (unit) => this.host.change({ unit, ...reset }),
      ),
      choice<View>(
        "View",
        [
          ["icicle", "From main"],
          ["bottom-up", "Bottom-up"],
          ["butterfly", "Butterfly"],
        ],
        state.view,
        (view) => this.host.change({ view, ...reset }),
      ),
      choice<By>(
        "Boxes",
        [
          ["function", "Functions"],
          ["line", "Lines"],
          ["library", "Libraries"],
        ],
        state.by,
        (by) => this.host.change({ by, focus: "", ...reset }),
      ),
      make(
        "label",
        { class: "switch" },
        make("input", {
          type: "checkbox",
          id: "full",
          checked: state.full,
          change: (event) => this.host.change({ full: (event.target as HTMLInputElement).checked, focus: "", ...reset }),
        }),
        "All frames",
      ),
      search,
    );
    return bar;
  }

  private chips(): HTMLElement {
    const { state } = this.host;
    const chips = make("div", { class: "chips" });
    const add = (text: string, part: Partial<State>): void => {
      chips.append(
        make("button", { type: "button", class: "chip", title: "Remove this filter", click: () => this.host.change(part) }, text, " ×"),
      );
    };
    if (state.focus !== "") add(`through ${state.focus}`, { focus: "", zoom: [] });
    if (state.zoom.length > 0) add("zoomed", { zoom: [] });
    if (chips.childElementCount === 0 && state.search === "") {
      chips.append(make("span", { class: "hint" }, "Click a box to zoom, a row to filter. Keys: / search, 1 2 3 views, Esc back."));
    }
    chips.append(make("output", { class: "matches", for: "search" }));
    return chips;
  }

  // Draws the graphs; returns which paths are in what is zoomed.
  private drawGraph(place: HTMLElement, keeps: (path: number) => boolean): (path: number) => boolean {
    const { state } = this.host;
    this.graphs.flames = [];
    place.append(this.chips());
    if (state.view === "butterfly") return this.drawButterfly(place, keeps);
    const direction = state.view === "icicle" ? "inwards" : "outwards";
    const tree = makeTree(this.profile, this.names, { ...state, direction, cut: wholePath, keeps });
    this.addFlame(place, tree, false, state.zoom);
    const zoomed = nodeAt(tree, state.zoom);
    if (zoomed === 0) return keeps;
    return this.below(namesTo(tree, zoomed), state.view === "icicle", keeps);
  }

  // The paths that begin, or end, with these names.
  private below(prefix: number[], isInwards: boolean, keeps: (path: number) => boolean): (path: number) => boolean {
    const kept = new Uint8Array(this.profile.paths.stack.length);
    eachPath(this.profile, this.names, (path, here, _frames, count) => {
      if (!keeps(path) || count < prefix.length) return;
      const at = (i: number): number => here[isInwards ? i : count - 1 - i];
      if (prefix.every((name, i) => at(i) === name)) kept[path] = 1;
    });
    return (path) => kept[path] === 1;
  }

  private drawButterfly(place: HTMLElement, keeps: (path: number) => boolean): (path: number) => boolean {
    const { state } = this.host;
    const rows = rowsByName(this.profile, this.names, state.value, keeps).filter((row) => row.number >= 0);
    const heaviest = rows.reduce<Row | null>(
      (best, row) => (best === null || Math.abs(row.self[state.unit]) > Math.abs(best.self[state.unit]) ? row : best),
      null,
    );
    const focused = this.names.texts.indexOf(state.focus);
    const name = focused >= 0 ? focused : (heaviest?.number ?? -1);
    if (name < 0) {
      place.append(make("p", { class: "empty" }, "No call path has a name here."));
      return keeps;
    }
    place.append(make("h2", {}, "Callers of ", make("code", {}, this.names.texts[name])));
    const options = { value: state.value, unit: state.unit, keeps };
    const callers = makeTree(this.profile, this.names, { ...options, direction: "outwards", cut: callersOf(name) });
    this.addFlame(place, callers, true, []);
    place.append(make("h2", {}, "Called by ", make("code", {}, this.names.texts[name])));
    const callees = makeTree(this.profile, this.names, { ...options, direction: "inwards", cut: calleesOf(name) });
    this.addFlame(place, callees, false, []);
    return keeps;
  }

  private addFlame(place: HTMLElement, tree: Tree, isFlipped: boolean, zoom: number[]): void {
    const { state } = this.host;
    if (tree.size === 1) {
      place.append(make("p", { class: "empty" }, "Nothing to show: no call path has such memory."));
      return;
    }
    const { frames, texts } = this.profile;
    const flags = (node: number): number => (tree.frame[node] < 0 ? HAS_SYMBOL : frames.flags[tree.frame[node]]);
    const graph = new FlameGraph(
      tree,
      {
        rootText: `all   ${this.figures(tree, 0)}`,
        isFlipped,
        isDifference: this.isDifference,
        colorOf: (node) => (tree.frame[node] < 0 ? "" : groupOf(tree.texts[tree.name[node]], texts[frames.library[tree.frame[node]]])),
        textOf: (node) => tree.texts[tree.name[node]],
        isMarked: (node) => (flags(node) & INLINE) !== 0 && state.by !== "library",
      },
      {
        hover: (node, x, y) => this.hover(tree, node, x, y),
        choose: (node) => this.choose(tree, node),
      },
    );
    place.append(graph.element);
    this.graphs.flames.push({ tree, graph });
    graph.zoom(nodeAt(tree, zoom), false);
  }

  private choose(tree: Tree, node: number): void {
    if (this.host.state.view === "butterfly") {
      if (node > 0) this.host.change({ focus: tree.texts[tree.name[node]] });
      return;
    }
    this.host.change({ zoom: positionsOf(tree, node) });
  }

  private figures(tree: Tree, node: number): string {
    const { unit } = this.host.state;
    return format.signed(tree[unit][node], unit, this.isDifference);
  }

  private hover(tree: Tree, node: number | null, x: number, y: number): void {
    this.tooltip.hidden = node === null;
    if (node === null) return;
    const { frames, texts } = this.profile;
    const frame = tree.frame[node];
    const measure: Measure = {
      bytes: tree.bytes[node],
      objects: tree.objects[node],
      samples: tree.samples[node],
      variance: tree.variance[node],
    };
    const lines: (Node | string)[] = [
      make("strong", {}, node === 0 ? "all call paths" : this.host.state.by === "library" || frame < 0 ? tree.texts[tree.name[node]] : texts[frames.function[frame]]),
    ];
    if (node > 0 && frame >= 0) {
      const place = frames.file[frame] === 0 ? "" : `${texts[frames.file[frame]]}:${frames.line[frame]}`;
      const inlined = (frames.flags[frame] & INLINE) !== 0 ? "inlined" : "";
      for (const text of [inlined, this.host.state.by === "library" ? "" : place, texts[frames.library[frame]]]) {
        if (text !== "") lines.push(make("div", { class: "place" }, text));
      }
    }
    const error = format.error(measure);
    const facts: [string, string][] = [
      ["bytes", format.signed(measure.bytes, "bytes", this.isDifference) + (error > 0 ? ` ± ${format.bytes(error)}` : "")],
      ["share", format.percent(Math.abs(measure.bytes), Math.abs(tree.bytes[0]))],
      ["objects", format.signed(measure.objects, "objects", this.isDifference)],
      ["mean size", this.mean(measure)],
      ["samples", format.count(measure.samples) + (format.isNoise(measure) ? " (may be noise)" : "")],
    ];
    const list = make("dl", {});
    for (const [name, text] of facts) list.append(make("dt", {}, name), make("dd", {}, text));
    this.tooltip.replaceChildren(...lines, list);
    const box = this.tooltip.getBoundingClientRect();
    this.tooltip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8))}px`;
    this.tooltip.style.top = `${y + 18 + box.height > window.innerHeight ? y - box.height - 10 : y + 18}px`;
  }

  private drawTable(place: HTMLElement, keeps: (path: number) => boolean): void {
    const { state } = this.host;
    const unit = state.unit;
    const isPath = state.table === "path";
    const rows = isPath
      ? rowsByPath(this.profile, this.tableNames, state.value, keeps)
      : rowsByName(this.profile, this.tableNames, state.value, keeps);
    const expression = state.search === "" ? null : compile(state.search);
    const nameOf = (row: Row): string => (isPath ? pathText(this.profile, this.tableNames, row.number, 6) : row.name);
    const shown = expression === null ? rows : rows.filter((row) => expression.test(nameOf(row)));
    const whole = Math.abs(total(this.profile, state.value)[unit]) || 1;
    const figures = (key: "self" | "total", title: string): Column<Row> => ({
      key,
      title,
      isNumber: true,
      text: (row) => format.signed(row[key][unit], unit, this.isDifference) + (unit === "bytes" && format.isNoise(row[key]) ? " ~" : ""),
      order: (row) => row[key][unit],
      hint: (row) =>
        `${format.signed(row[key].bytes, "bytes", this.isDifference)} ± ${format.bytes(format.error(row[key]))}, ` +
        `${format.plural(row[key].samples, "sample")}` +
        (format.isNoise(row[key]) ? "; less than twice its standard error: may be noise" : ""),
      share: (row) => Math.abs(row[key][unit]) / whole,
    });
    const columns: Column<Row>[] = [
      figures("self", isPath ? "Bytes" : "Self"),
      ...(isPath ? [] : [figures("total", "Total")]),
      { key: "samples", title: "Samples", isNumber: true, text: (row) => format.count(row.total.samples), order: (row) => row.total.samples },
      { key: "name", title: isPath ? "Call path" : "Name", isNumber: false, text: nameOf, order: nameOf },
    ];
    if (isPath && unit === "objects") columns[0].title = "Objects";
    place.append(
      choice<Table>(
        "Rows",
        [
          ["function", "Functions"],
          ["line", "Lines"],
          ["path", "Paths"],
          ["library", "Libraries"],
        ],
        state.table,
        (table) => this.host.change({ table }),
      ),
      make(
        "div",
        { class: "scroll" },
        makeTable(
          shown,
          columns,
          { key: state.sort, isAscending: state.ascending },
          (sorting) => this.host.change({ sort: sorting.key, ascending: sorting.isAscending }),
          (row) => this.chooseRow(row, isPath),
        ),
      ),
    );
  }

  private chooseRow(row: Row, isPath: boolean): void {
    if (!isPath) {
      this.host.change({ focus: row.name === this.host.state.focus ? "" : row.name, zoom: [] });
      return;
    }
    // Shows the path from main on.
    let path: number[] = [];
    eachPath(this.profile, this.names, (number, here, _frames, count) => {
      if (number === row.number) path = Array.from(here.subarray(0, count));
    });
    const tree = makeTree(this.profile, this.names, { ...this.host.state, direction: "inwards", cut: wholePath, keeps: this.filter() });
    const zoom: number[] = [];
    let node = 0;
    for (const name of path) {
      const position = childrenOf(tree, node).findIndex((child) => tree.name[child] === name);
      if (position < 0) break;
      zoom.push(position);
      node = childrenOf(tree, node)[position];
    }
    this.host.change({ view: "icicle", zoom });
  }

  // Marks what matches, and says how much it is together.
  private drawSearch(keeps: (path: number) => boolean): void {
    const { state } = this.host;
    const output = this.element.querySelector(".matches") as HTMLOutputElement;
    output.textContent = "";
    if (state.search === "") {
      for (const { graph } of this.graphs.flames) graph.search(null);
      return;
    }
    const expression = compile(state.search);
    if (expression === null) {
      output.textContent = "not a regular expression";
      return;
    }
    const matches = this.names.texts.map((text) => expression.test(text));
    let sum = 0;
    eachPath(this.profile, this.names, (path, here, _frames, count) => {
      if (!keeps(path)) return;
      for (let i = 0; i < count; i++) {
        if (!matches[here[i]]) continue;
        const { paths } = this.profile;
        sum += (state.value === "live" ? (state.unit === "bytes" ? paths.live_bytes : paths.live_objects) : state.unit === "bytes" ? paths.allocated_bytes : paths.allocated_objects)[path];
        return;
      }
    });
    const whole = total(this.profile, state.value)[state.unit];
    output.textContent = `${format.signed(sum, state.unit, this.isDifference)} (${format.percent(sum, whole)}) match`;
    for (const { tree, graph } of this.graphs.flames) graph.search((node) => matches[tree.name[node]] === true);
  }
}
