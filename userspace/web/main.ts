// SPDX-License-Identifier: Apache-2.0
//
// Starts the page: with the profile that it contains, or as the page of the daemon.
import { make } from "./dom";
import { fetchHistory, History, momentAddress } from "./history";
import { Profile } from "./profile";
import { ProcessesView } from "./processes_view";
import { ProfileView } from "./profile_view";
import { DEFAULTS, fromHash, State, toHash } from "./state";
import { Timeline } from "./timeline";

class Page {
  private state: State = fromHash(location.hash);
  private readonly place = document.getElementById("app") as HTMLElement;
  private processes: ProcessesView | null = null;
  private loaded: { key: string; profile: Profile } | null = null;
  private past: { key: string; history: History | null } | null = null;
  timeline: Timeline | null = null;
  private turn = 0; // of those that read from the daemon
  view: ProfileView | null = null;
  readyMilliseconds = 0; // from the begin of loading until the own profile was drawn; for tests

  constructor(private readonly own: Profile | null) {
    window.addEventListener("hashchange", () => {
      if (location.hash.replace(/^#/, "") === toHash(this.state)) return;
      this.state = fromHash(location.hash);
      void this.show();
    });
    window.addEventListener("keydown", (event) => this.key(event));
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.view?.draw());
    void this.show();
    this.readyMilliseconds = performance.now();
  }

  private change(part: Partial<State>): void {
    const isTyping = Object.keys(part).join() === "search";
    this.state = Object.assign(this.state, part);
    const hash = `#${toHash(this.state)}`;
    // Letters of a search are no steps of the history.
    if (isTyping) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
    const search = document.activeElement?.id === "search" ? (document.activeElement as HTMLInputElement).selectionStart : null;
    void this.show().then(() => {
      if (search === null) return;
      const field = document.getElementById("search") as HTMLInputElement | null;
      field?.focus();
      field?.setSelectionRange(search, search);
    });
  }

  private async show(): Promise<void> {
    if (this.own === null && this.state.pid === "" && this.state.service === "") {
      this.view = null;
      this.loaded = null;
      this.past = null;
      document.title = "heaptap";
      if (this.processes === null) {
        this.processes = new ProcessesView(this.state, (part) => this.change(part));
        this.place.replaceChildren(this.processes.element);
      } else {
        this.processes.show(this.state);
      }
      return;
    }
    this.processes?.stop();
    this.processes = null;
    let profile = this.own;
    if (profile === null) {
      const { pid, service, at, from, span } = this.state;
      const key = [pid, service, at, from].join();
      const pastKey = [pid, service, span].join();
      if (this.loaded?.key !== key || this.past?.key !== pastKey) {
        const turn = ++this.turn;
        if (this.loaded === null) this.place.replaceChildren(make("p", { class: "empty", role: "status" }, "Reading the profile…"));
        try {
          // Both before anything is drawn, so that nothing moves afterwards.
          const state = { ...this.state };
          const past = this.past?.key === pastKey ? this.past : { key: pastKey, history: await fetchHistory(state) };
          const loaded = this.loaded?.key === key ? this.loaded : { key, profile: await fetchProfile(state, past.history) };
          // Something else was chosen meanwhile.
          if (turn !== this.turn) return;
          if (loaded !== this.loaded) this.view = null;
          this.past = past;
          this.loaded = loaded;
          this.timeline = null;
        } catch (problem) {
          if (turn !== this.turn) return;
          this.loaded = null;
          this.view = null;
          const back = make("button", { type: "button", class: "back", click: () => this.change({ ...DEFAULTS, zoom: [] }) }, "← Processes");
          this.place.replaceChildren(make("p", { class: "empty", role: "alert" }, String(problem instanceof Error ? problem.message : problem)), back);
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
        back: this.own !== null ? null : () => this.change({ ...DEFAULTS, zoom: [] }),
        timeline,
      });
      this.place.replaceChildren(this.view.element);
      return;
    }
    this.view.show(this.state, timeline);
  }

  // The same element as long as nothing of it changes, so that it keeps the focus. null: there is no history.
  private drawTimeline(): HTMLElement | null {
    const history = this.own === null ? (this.past?.history ?? null) : null;
    if (history === null) return null;
    const hadFocus = document.activeElement instanceof HTMLCanvasElement && document.activeElement.closest(".timeline") !== null;
    if (this.timeline === null) {
      this.timeline = new Timeline(history, this.state, (part) => this.change(part), () => this.readAgain());
      if (hadFocus) window.setTimeout(() => this.timeline?.element.querySelector("canvas")?.focus({ preventScroll: true }));
    }
    return this.timeline.element;
  }

  private readAgain(): void {
    this.past = null;
    void this.show();
  }

  private key(event: KeyboardEvent): void {
    const isTyping = event.target instanceof HTMLInputElement && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.view?.help.element.open === true) return;
    if (event.key === "Escape") {
      if (isTyping) (event.target as HTMLInputElement).blur();
      if (this.state.search !== "") this.change({ search: "" });
      else if (this.view === null) return;
      else if (this.state.zoom.length > 0) this.change({ zoom: this.state.zoom.slice(0, -1) });
      else if (this.state.focus !== "") this.change({ focus: "" });
      else if (this.state.age !== null) this.change({ age: null });
      else if (this.state.size !== null) this.change({ size: null });
      else if (this.state.thread !== "") this.change({ thread: "" });
      else if (this.state.at !== 0) this.change({ at: 0, from: 0 });
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
    const views = ["icicle", "bottom-up", "butterfly"] as const;
    const number = ["1", "2", "3"].indexOf(event.key);
    if (number >= 0 && this.view !== null) this.change({ view: views[number], zoom: [] });
  }
}

async function fetchProfile(state: State, history: History | null): Promise<Profile> {
  const { pid, service, at } = state;
  if (service === "" && !/^\d+$/.test(pid)) throw new Error("The address names no process.");
  if (service === "" && at === 0) {
    const answer = await fetch(`/pid/${pid}/profile.json`);
    if (answer.ok) return (await answer.json()) as Profile;
    // It has ended: what the history has of it is left.
    if (history === null) throw new Error(`Process ${pid}: ${(await answer.text()).trim()}`);
  }
  const answer = await fetch(momentAddress(state, history?.points[history.points.length - 1]?.time ?? 0));
  if (answer.ok) return (await answer.json()) as Profile;
  const body = (await answer.json().catch(() => ({}))) as { error?: string };
  throw new Error(body.error ?? `The daemon answers ${answer.status}.`);
}

const data = document.getElementById("profile");
const page = new Page(data === null ? null : (JSON.parse(data.textContent ?? "null") as Profile));
// For tests, and for people with a console.
(window as unknown as { heaptap: Page }).heaptap = page;
