// SPDX-License-Identifier: Apache-2.0
//
// The daemon's processes, like top: what each holds now, how that changes, and how the ended processes ended. Or only
// the running processes, to choose one for a comparison.
import { compareWith, endComparison } from "./comparison";
import { make } from "./dom";
import { howEnded } from "./ending";
import * as format from "./format";
import { fetchServices, Service } from "./history";
import { focusOf, KeptFocus } from "./kept_focus";
import { fileName } from "./profile";
import { CHOOSE, State } from "./state";
import { Column, makeTable } from "./table";

// The fields of /processes.json and /ended.json that are shown (userspace/profile/figure_tables.h).
export interface Process {
  pid: number;
  process_id: number; // the number of its books, which is used only once
  command: string;
  executable: string;
  service?: string | null; // the name of its systemd unit; absent from daemons that did not know it yet
  control_group?: string | null;
  allocator?: string | null; // "heaptap", "guest over jemalloc 5.3.0"; null: unknown
  recorded_since: string;
  live_bytes: number;
  resident_bytes?: number | null; // null: unknown; absent from daemons that did not know it yet
  peak_bytes: number;
  allocation_rate: number; // bytes per second
  samples: number;
  losses: { [reason: string]: number };
  growth_per_minute?: number | null; // bytes; null: unknown; absent from daemons that did not know it yet
  growth_error?: number | null;
  growth_seconds?: number | null; // the period of the growth
  // Only an ended process has these.
  ended?: string;
  status?: number; // as waitpid(2) has it
  by_oom_kill?: boolean;
}

interface Line {
  process: Process;
  history: { time: number; live: number }[];
}

const POLL_MILLISECONDS = 2000;
const MOST_POINTS = 120;
const MOST_SERVICES = 60; // the latest ones
const WIDTH = 110;
const HEIGHT = 20;

export class ProcessesView {
  readonly element = make("main", { class: "processes" });
  private readonly lines = new Map<number, Line>();
  private ended: Process[] = [];
  private timer = 0;
  private readonly search: HTMLInputElement;
  private readonly table = make("div", { class: "scroll" });
  private readonly services = make("section", { class: "services", "aria-label": "Services" });
  private readonly message = make("p", { class: "empty", role: "status" });

  private readonly title = make("h1", {}, "Processes");
  private readonly links = make("nav", {});
  private readonly running: HTMLInputElement = make("input", {
    type: "checkbox",
    id: "running",
    change: () => this.change({ running: this.running.checked }),
  });
  private readonly onlyRunning = make("label", { class: "switch" }, this.running, "Running only");
  private readonly cancel = make("button", { type: "button", class: "back", id: "cancel", click: () => this.change(endComparison()) }, "Cancel");

  private isPressed = false; // a button of the mouse, on the table
  private readonly release = (): void => {
    this.isPressed = false;
  };

  // `cameFrom`: the PID of the process whose row gets the focus, as soon as it is there; "": none.
  constructor(
    private state: State,
    private readonly change: (part: Partial<State>) => void,
    private cameFrom: string,
  ) {
    this.search = make("input", {
      type: "search",
      id: "search",
      placeholder: "Filter by name, unit or cgroup   /",
      "aria-label": "Filter by name, unit or control group",
      value: state.search,
      input: () => this.change({ search: this.search.value }),
    });
    for (const [path, name] of [
      ["/metrics", "metrics"],
      ["/processes.json", "processes.json"],
      ["/ended.json", "ended.json"],
    ]) {
      this.links.append(make("a", { href: path }, name));
    }
    this.element.append(
      make("header", {}, this.title, this.search, this.onlyRunning, this.cancel, this.links),
      this.message,
      this.table,
      this.services,
    );
    // A click counts only if the row is the same when the button is released.
    this.table.addEventListener("pointerdown", () => (this.isPressed = true));
    for (const type of ["pointerup", "pointercancel"]) window.addEventListener(type, this.release);
    void fetchServices().then((services) => this.drawServices(services), () => undefined);
    void this.poll();
  }

  show(state: State): void {
    this.state = state;
    if (this.search.value !== state.search) this.search.value = state.search;
    this.draw();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = -1;
    for (const type of ["pointerup", "pointercancel"]) window.removeEventListener(type, this.release);
  }

  private async poll(): Promise<void> {
    try {
      const [running, ended] = await Promise.all(["/processes.json", "/ended.json"].map((path) => fetch(path)));
      if (!running.ok || !ended.ok) throw new Error(`the daemon answers ${running.status}`);
      this.take(((await running.json()) as { processes: Process[] }).processes);
      this.ended = ((await ended.json()) as { ended: Process[] }).ended;
      this.message.textContent = this.lines.size + this.ended.length === 0 ? "No process is recorded. Start one with LD_PRELOAD=libheaptap.so or libheaptap-guest.so." : "";
    } catch (problem) {
      this.message.textContent = `No answer: ${problem instanceof Error ? problem.message : String(problem)}`;
    }
    if (!this.isPressed) this.draw();
    if (this.timer >= 0) this.timer = window.setTimeout(() => void this.poll(), POLL_MILLISECONDS);
  }

  private take(processes: Process[]): void {
    const now = Date.now() / 1000;
    const seen = new Set(processes.map((process) => process.process_id));
    for (const id of [...this.lines.keys()]) if (!seen.has(id)) this.lines.delete(id);
    for (const process of processes) {
      const line = this.lines.get(process.process_id) ?? { process, history: [] };
      line.process = process;
      line.history.push({ time: now, live: process.live_bytes });
      if (line.history.length > MOST_POINTS) line.history.shift();
      this.lines.set(process.process_id, line);
    }
  }

  private draw(): void {
    const isChoosing = this.state.base === CHOOSE;
    const isOther = (line: Line): boolean => String(line.process.pid) !== this.state.pid;
    const all = [...this.lines.values(), ...(isChoosing || this.state.running ? [] : this.ended.map((process) => ({ process, history: [] })))];
    const known = isChoosing ? all.filter(isOther) : all;
    const lines = known.filter((line) => matches(line.process, this.state.search));
    this.drawHead(isChoosing, all.find((line) => !isOther(line)));
    const columns = this.columns(all.some((line) => placeOf(line.process) !== ""));
    const sorting = {
      key: columns.some((column) => column.key === this.state.sort) ? this.state.sort : "live",
      isAscending: this.state.ascending,
    };
    const focus = focusOf(this.table);
    const table = makeTable(
      lines,
      columns,
      sorting,
      (next) => this.change({ sort: next.key, ascending: next.isAscending }),
      (line) => this.choose(String(line.process.pid)),
      (line) => String(line.process.process_id),
    );
    this.table.replaceChildren(table);
    if (!isChoosing && this.state.running && all.length === 0 && this.ended.length > 0) {
      this.table.append(make("p", { class: "empty" }, "No process runs."));
    }
    if (lines.length === 0 && known.length > 0) this.table.append(make("p", { class: "empty" }, "No process matches the filter."));
    if (isChoosing && this.lines.size > 0 && known.length === 0) {
      this.table.append(make("p", { class: "empty" }, "No other process is recorded."));
    }
    this.giveFocus(focus, lines);
  }

  private drawHead(isChoosing: boolean, compared: Line | undefined): void {
    const name = compared === undefined ? `process ${this.state.pid}` : `${compared.process.command || "-"} (PID ${this.state.pid})`;
    const title = isChoosing ? `Compare ${name} with…` : "Processes";
    if (this.title.textContent !== title) this.title.textContent = title;
    this.cancel.hidden = !isChoosing;
    this.onlyRunning.hidden = isChoosing;
    this.running.checked = this.state.running;
    this.links.hidden = isChoosing;
    this.services.hidden = isChoosing;
  }

  private choose(pid: string): void {
    // The filter is for processes, not for functions. For an ended process, the history is left.
    this.change(this.state.base === CHOOSE ? compareWith(pid) : { pid, search: "", sort: "self", ascending: false });
  }

  // Gives the focus to the row of the process that was looked at; else to where it was before the table was drawn.
  private giveFocus(focus: KeptFocus, lines: Line[]): void {
    const shown = lines.find((line) => String(line.process.pid) === this.cameFrom);
    const isFree = document.activeElement === document.body;
    // Once only: later the person may be elsewhere.
    if (this.lines.size + this.ended.length > 0) this.cameFrom = "";
    if (shown === undefined || !isFree) return focus.restore();
    this.table.querySelector<HTMLElement>(`[data-row="${shown.process.process_id}"]`)?.focus();
  }

  private columns(hasPlaces: boolean): Column<Line>[] {
    const place: Column<Line> = {
      key: "place",
      title: "Unit or cgroup",
      isNumber: false,
      text: (line) => placeOf(line.process) || "-",
      order: (line) => placeOf(line.process),
      hint: (line) => line.process.control_group ?? "",
    };
    return [
      { key: "pid", title: "PID", isNumber: true, text: (line) => String(line.process.pid), order: (line) => line.process.pid },
      {
        key: "command",
        title: "Command",
        isNumber: false,
        text: (line) => line.process.command || "-",
        order: (line) => line.process.command,
        hint: (line) => [line.process.executable, line.process.allocator ?? ""].filter((text) => text !== "").join(", "),
      },
      ...(hasPlaces ? [place] : []),
      { ...this.bytes("live", "Live", (line) => line.process.live_bytes), picture: (line) => (isRunning(line) ? sparkline(line) : null) },
      {
        ...this.bytes("resident", "RSS", (line) => line.process.resident_bytes ?? -1),
        text: (line) => residentText(line.process),
        hint: () => "Resident memory, with all that is no heap",
      },
      {
        ...this.bytes("growth", "Growth/min", (line) => growth(line) ?? -Infinity),
        text: (line) => growthText(line.process),
        hint: (line) => growthHint(line.process),
      },
      this.bytes("peak", "Peak", (line) => line.process.peak_bytes),
      { ...this.bytes("rate", "Allocated/s", rate), text: (line) => (isRunning(line) ? format.bytes(rate(line)) : "-") },
      { key: "samples", title: "Samples", isNumber: true, text: (line) => format.count(line.process.samples), order: (line) => line.process.samples },
      { key: "losses", title: "Losses", isNumber: true, text: (line) => format.count(losses(line)), order: losses },
      { key: "state", title: "State", isNumber: false, text: stateOf, order: (line) => line.process.ended ?? "" },
    ];
  }

  // Draws the services that the daemon has a history of, including the time before its last start.
  private drawServices(services: Service[]): void {
    if (services.length === 0) return;
    const list = make("ul", {});
    for (const service of [...services].sort((a, b) => b.last - a.last).slice(0, MOST_SERVICES)) {
      const hint = `${service.running} running, ${service.processes - service.running} ended`;
      const choose = (): void => this.change({ service: service.name, search: "", sort: "self", ascending: false });
      list.append(make("li", {}, make("button", { type: "button", class: "back", title: hint, click: choose }, service.name || "-")));
    }
    this.services.replaceChildren(make("h2", {}, "History of services"), list);
  }

  private bytes(key: string, title: string, value: (line: Line) => number): Column<Line> {
    return { key, title, isNumber: true, text: (line) => format.bytes(value(line)), order: value };
  }
}

// The systemd unit; without one, the last part of the control group, which says most. "": neither is known.
export function placeOf(process: Pick<Process, "service" | "control_group">): string {
  return process.service || fileName(process.control_group ?? "");
}

export function matches(process: Pick<Process, "command" | "executable" | "service" | "control_group">, word: string): boolean {
  const texts = [process.command, process.executable, process.service ?? "", process.control_group ?? ""];
  return texts.some((text) => text.toLowerCase().includes(word.toLowerCase()));
}

// "-": unknown, as of a process that has ended.
export function residentText({ resident_bytes: bytes }: Pick<Process, "resident_bytes">): string {
  return bytes === undefined || bytes === null ? "-" : format.bytes(bytes);
}

function isRunning(line: Line): boolean {
  return line.process.ended === undefined;
}

function stateOf(line: Line): string {
  const { process } = line;
  if (process.ended === undefined) return `since ${format.duration((Date.now() - Date.parse(process.recorded_since)) / 1000)}`;
  const how = howEnded({ status: process.status ?? 0, by_oom_kill: process.by_oom_kill === true });
  return `${how}, ${format.duration((Date.now() - Date.parse(process.ended)) / 1000)} ago`;
}

function losses(line: Line): number {
  return Object.values(line.process.losses).reduce((sum, count) => sum + count, 0);
}

function rate(line: Line): number {
  return isRunning(line) ? line.process.allocation_rate : 0;
}

function growth(line: Line): number | null {
  return isRunning(line) ? (line.process.growth_per_minute ?? null) : null;
}

type Growth = Pick<Process, "ended" | "growth_per_minute" | "growth_error" | "growth_seconds">;

// "-": unknown. "~": less than twice its standard error.
export function growthText(process: Growth): string {
  const rate = process.growth_per_minute ?? null;
  if (process.ended !== undefined || rate === null) return "-";
  const isNoise = Math.abs(rate) < 2 * (process.growth_error ?? 0);
  return format.signed(rate, "bytes", true) + (isNoise ? " ~" : "");
}

export function growthHint(process: Growth): string {
  if (process.ended !== undefined) return "It has ended.";
  if (growthText(process) === "-") return "Not known: the daemon has no history of it, or less than half a minute.";
  const { growth_per_minute: rate, growth_error: error, growth_seconds: seconds } = process;
  const noise = growthText(process).endsWith("~") ? "; less than twice its standard error: may be noise" : "";
  return `${format.signed(rate ?? 0, "bytes", true)} ± ${format.bytes(error ?? 0)} per minute, over the last ${format.duration(seconds ?? 0)}${noise}`;
}

function sparkline(line: Line): SVGElement {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("aria-hidden", "true");
  const most = Math.max(1, ...line.history.map((point) => point.live));
  const points = line.history.map((point, i) => {
    const x = line.history.length === 1 ? 0 : (i / (line.history.length - 1)) * WIDTH;
    return `${x.toFixed(1)},${(HEIGHT - 1 - (point.live / most) * (HEIGHT - 3)).toFixed(1)}`;
  });
  const path = document.createElementNS(namespace, "polyline");
  path.setAttribute("points", points.join(" "));
  svg.append(path);
  return svg;
}
