// SPDX-License-Identifier: Apache-2.0
//
// Starts the page: with the profile that it contains, or as the page of the daemon.
import { Comparison, endComparison, fetchComparison, makeCompareButton, makeComparisonBar, startChoosing } from "./comparison";
import { make, selectorsOf } from "./dom";
import { Ending, endingInHistory, endingInList, fetchEnded } from "./ending";
import { Freshness } from "./freshness";
import { fetchHistory, History, momentAddress, renamedPath } from "./history";
import { Profile } from "./profile";
import { ProcessesView } from "./processes_view";
import { ProfileView } from "./profile_view";
import { Host } from "./scene";
import { CHOOSE, DEFAULTS, fromHash, State, toHash } from "./state";
import { Timeline } from "./timeline";

class Page {
  private state: State = fromHash(location.hash);
  private readonly place = document.getElementById("app") as HTMLElement;
  private processes: ProcessesView | null = null;
  private loaded: (Shown & { key: string }) | null = null;
  private ending: Ending | null = null; // of the process that is shown, or of one of two
  private past: { key: string; history: History | null } | null = null;
  private above: HTMLElement | null = null; // above the profile, in the place of a timeline
  private tableState: Partial<State> = {}; // of the table of processes, when it was last shown
  private shownPid = ""; // of the last profile
  private readonly freshness = new Freshness(
    () => this.state.at === 0 && this.loaded !== null && this.ending === null,
    () => this.readNews(),
  );
  timeline: Timeline | null = null;
  private turn = 0; // the number of the latest read from the daemon
  view: ProfileView | null = null;
  readyMilliseconds = 0; // from the beginning of loading until the own profile was drawn; for tests

  constructor(private readonly own: Profile | null) {
    window.addEventListener("hashchange", () => {
      if (location.hash.replace(/^#/, "") === toHash(this.state)) return;
      this.state = fromHash(location.hash);
      void this.show();
    });
    window.addEventListener("keydown", (event) => this.key(event));
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.view?.draw();
      this.timeline?.draw();
    });
    void this.show();
    this.readyMilliseconds = performance.now();
  }

  // `isStep`: somebody may go back to what was shown before. Letters of a search are not such steps.
  private change(part: Partial<State>, isStep = Object.keys(part).join() !== "search"): void {
    this.state = Object.assign(this.state, part);
    const hash = `#${toHash(this.state)}`;
    if (isStep) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
    void this.show();
  }

  private async show(): Promise<void> {
    const { base } = this.state;
    if (this.own === null && ((this.state.pid === "" && this.state.service === "") || base === CHOOSE)) {
      this.showProcesses();
      return;
    }
    const cameFromTable = this.processes !== null;
    this.processes?.stop();
    this.processes = null;
    this.shownPid = this.state.pid;
    let profile = this.own;
    if (profile === null) {
      const { pid, service, at, from, span } = this.state;
      const key = [pid, service, at, from, base].join();
      const pastKey = [pid, service, span, base].join();
      if (this.loaded?.key !== key || this.past?.key !== pastKey) {
        const turn = ++this.turn;
        if (this.loaded === null) this.place.replaceChildren(make("p", { class: "empty", role: "status" }, "Reading the profile…"));
        try {
          // Both are read before anything is drawn, so that nothing moves afterwards.
          const state = { ...this.state };
          const past = this.past?.key === pastKey ? this.past : { key: pastKey, history: base === "" ? await fetchHistory(state) : null };
          const loaded = this.loaded?.key === key ? this.loaded : { key, ...(await fetchShown(state, past.history)) };
          // Something else was chosen meanwhile.
          if (turn !== this.turn) return;
          if (loaded !== this.loaded) this.view = null;
          this.past = past;
          this.loaded = loaded;
          const known = this.ending !== null && this.ending.pid === pid && !loaded.isLive ? this.ending : null;
          this.ending = endingInHistory(pid, ranAt(loaded), past.history) ?? loaded.ending ?? known;
          this.freshness.start(past.history);
          this.timeline = null;
          this.above = null;
        } catch (problem) {
          if (turn !== this.turn) return;
          this.loaded = null;
          this.view = null;
          this.timeline = null;
          this.showProblem(String(problem instanceof Error ? problem.message : problem));
          return;
        }
      }
      profile = this.loaded.profile;
    }
    document.title = `${profile.subject.name} - heaptap`;
    const timeline = this.drawTimeline();
    if (this.view === null) {
      this.view = new ProfileView(profile, {
        state: this.state,
        change: (part) => this.change(part),
        back: this.own !== null ? null : () => this.toProcesses(),
        timeline,
        ...this.standing(),
      });
      const [control] = cameFromTable ? [".back"] : selectorsOf(document.activeElement);
      this.place.replaceChildren(this.view.element);
      if (control !== undefined) this.place.querySelector<HTMLElement>(control)?.focus({ preventScroll: true });
      return;
    }
    this.view.show({ state: this.state, timeline, ...this.standing() });
  }

  private standing(): Standing {
    const { loaded, ending } = this;
    const isLive = loaded?.isLive ?? false;
    const canChange = loaded !== null && this.state.at === 0 && (isLive || ending === null);
    return { isLive, ending, readAgain: canChange ? () => this.readNow() : null };
  }

  private showProcesses(): void {
    this.view = null;
    this.loaded = null;
    this.past = null;
    this.timeline = null;
    this.turn++; // What is still being read is not wanted any more.
    document.title = "heaptap";
    const isChoosing = this.state.base === CHOOSE;
    if (!isChoosing) {
      const { search, sort, ascending, running } = this.state;
      this.tableState = { search, sort, ascending, running };
    }
    if (this.processes !== null) {
      this.processes.show(this.state);
      return;
    }
    this.processes = new ProcessesView(this.state, (part) => this.change(part), isChoosing ? "" : this.shownPid);
    this.place.replaceChildren(this.processes.element);
    if (isChoosing) document.getElementById("search")?.focus();
  }

  private showProblem(text: string): void {
    const choices = [make("button", { type: "button", class: "back", click: () => this.toProcesses() }, "← Processes")];
    if (this.state.base !== "") {
      const choose = (): void => this.change(startChoosing());
      choices.push(make("button", { type: "button", class: "back", id: "compare", click: choose }, "Choose another process…"));
    }
    this.place.replaceChildren(make("main", {}, make("header", {}, ...choices), make("p", { class: "problem", role: "alert" }, text)));
  }

  private toProcesses(): void {
    this.change({ ...DEFAULTS, zoom: [], ...this.tableState });
  }

  // The same element as long as nothing in it changes, so that it keeps the focus. null: there is nothing to show.
  private drawTimeline(): HTMLElement | null {
    if (this.own !== null || this.loaded === null) return null;
    const { comparison, profile } = this.loaded;
    if (comparison !== null) return (this.above ??= makeComparisonBar(comparison, this.state, (part) => this.change(part)));
    const runs = this.ending === null;
    const compare = profile.subject.pid === null || !runs ? null : makeCompareButton((part) => this.change(part));
    const history = this.past?.history ?? null;
    if (history === null) {
      if (compare !== null) this.above ??= make("section", { class: "comparison" }, compare);
      return this.above;
    }
    const hadFocus = document.activeElement instanceof HTMLCanvasElement && document.activeElement.closest(".timeline") !== null;
    if (this.timeline === null) {
      this.timeline = new Timeline(history, this.state, (part) => this.change(part), {
        refresh: () => this.readAgain(),
        now: () => this.readNow(),
        compare,
        canMark: runs,
      });
      if (hadFocus) window.setTimeout(() => this.timeline?.element.querySelector("canvas")?.focus({ preventScroll: true }));
    }
    this.timeline.show(this.state);
    return this.timeline.element;
  }

  private readNow(): void {
    if (this.loaded !== null) this.loaded = { ...this.loaded, key: "" };
    this.readAgain();
  }

  private readAgain(): void {
    this.past = null;
    void this.show();
  }

  // Reads what is new in the history, and whether the process has ended. null: there is no history.
  private async readNews(): Promise<History | null> {
    const { past, timeline, loaded, state } = this;
    const history = past === null || past.history === null ? null : await fetchHistory({ ...state });
    const ending = endingInHistory(state.pid, ranAt(loaded), history) ?? (history === null ? await findEnding(state, loaded) : null);
    // Something else was chosen meanwhile, or nobody looks any more.
    if (document.visibilityState !== "visible") return null;
    if (past === null || this.past !== past || this.loaded !== loaded || this.timeline !== timeline || this.state.at !== 0) return null;
    if (past.history !== null && history !== null) {
      const path = renamedPath(past.history, history, this.state.path);
      past.history = history;
      timeline?.update(history);
      if (path !== this.state.path) this.change({ path }, false);
    }
    if (ending !== null) this.showEnding(ending);
    return history;
  }

  // Removes what works only for a running process.
  private showEnding(ending: Ending): void {
    this.ending = ending;
    this.timeline = null;
    this.above = null;
    void this.show();
  }

  private key(event: KeyboardEvent): void {
    const isTyping = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.view?.help.element.open === true) return;
    if (event.key === "Escape") {
      if (isTyping) (event.target as HTMLInputElement).blur();
      if (this.state.search !== "") this.change({ search: "" });
      else if (this.state.base === CHOOSE) this.change(endComparison());
      else if (this.processes !== null) return;
      else if (this.view === null && this.own === null) this.toProcesses();
      else if (this.state.zoom.length > 0) this.change({ zoom: this.state.zoom.slice(0, -1) });
      else if (this.state.focus !== "") this.change({ focus: "" });
      else if (this.state.path !== "") this.change({ path: "" });
      else if (this.state.age !== null) this.change({ age: null });
      else if (this.state.size !== null) this.change({ size: null });
      else if (this.state.thread !== "") this.change({ thread: "" });
      else if (this.state.at !== 0) this.change({ at: 0, from: 0 });
      else if (this.state.base !== "") this.change(endComparison());
      else if (this.own === null && !isTyping) this.toProcesses();
      return;
    }
    if (isTyping) return;
    if (event.key === "/") {
      document.getElementById("search")?.focus();
      event.preventDefault();
      return;
    }
    if (event.key === "?") {
      this.view?.help.open();
      return;
    }
    if (event.key === "c" || event.key === "C") {
      this.view?.copy(event.key === "c" ? "name" : "path");
      return;
    }
    const views = ["icicle", "bottom-up", "butterfly"] as const;
    const number = ["1", "2", "3"].indexOf(event.key);
    if (number >= 0 && this.view !== null) this.change({ view: views[number], zoom: [] });
  }
}

type Standing = Pick<Host, "isLive" | "ending" | "readAgain">;

interface Shown {
  profile: Profile;
  comparison: Comparison | null;
  isLive: boolean; // else the profile is of the history
  ending: Ending | null; // as far as the daemon knows it without the history
}

async function fetchShown(state: State, history: History | null): Promise<Shown> {
  const { pid, service, at } = state;
  if (state.base !== "") {
    const comparison = await fetchComparison(state);
    return { profile: comparison.profile, comparison, isLive: true, ending: null };
  }
  if (service === "" && !/^\d+$/.test(pid)) throw new Error("The address names no process.");
  let ending: Ending | null = null;
  if (service === "" && at === 0) {
    const answer = await fetch(`/pid/${pid}/profile.json`);
    if (answer.ok) return { profile: (await answer.json()) as Profile, comparison: null, isLive: true, ending: null };
    // The process has ended: only its history is left.
    if (history === null) throw new Error(`Process ${pid}: ${(await answer.text()).trim()}`);
    ending = endingInList(pid, 0, await fetchEnded()) ?? { pid, time: null, how: "" };
  }
  const answer = await fetch(momentAddress(state, history?.points[history.points.length - 1]?.time ?? 0));
  if (answer.ok) return { profile: (await answer.json()) as Profile, comparison: null, isLive: false, ending };
  const body = (await answer.json().catch(() => ({}))) as { error?: string };
  throw new Error(body.error ?? `The daemon answers ${answer.status}.`);
}

// A time at which the process that is shown ran; 0: unknown.
function ranAt(loaded: Shown | null): number {
  return loaded?.isLive === true ? (loaded.profile.subject.time ?? 0) : 0;
}

// Finds a process that is shown and has ended since its profile was read.
async function findEnding(state: State, loaded: Shown | null): Promise<Ending | null> {
  const list = await fetchEnded();
  const endings = [state.pid, state.base].map((pid) => endingInList(pid, ranAt(loaded), list));
  return endings.find((one) => one !== null) ?? null;
}

const data = document.getElementById("profile");
const page = new Page(data === null ? null : (JSON.parse(data.textContent ?? "null") as Profile));
// For tests, and for people with a console.
(window as unknown as { heaptap: Page }).heaptap = page;
