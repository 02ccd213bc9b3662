// SPDX-License-Identifier: Apache-2.0
//
// Starts the page: with the profile that it contains, or as the page of the daemon.
import { make } from "./dom";
import { Profile } from "./profile";
import { ProcessesView } from "./processes_view";
import { ProfileView } from "./profile_view";
import { DEFAULTS, fromHash, State, toHash } from "./state";

class Page {
  private state: State = fromHash(location.hash);
  private readonly place = document.getElementById("app") as HTMLElement;
  private processes: ProcessesView | null = null;
  private loaded: { pid: string; profile: Profile } | null = null;
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
    if (this.own === null && this.state.pid === "") {
      this.view = null;
      this.loaded = null;
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
      if (this.loaded?.pid !== this.state.pid) {
        this.place.replaceChildren(make("p", { class: "empty", role: "status" }, "Reading the profile…"));
        try {
          this.loaded = { pid: this.state.pid, profile: await fetchProfile(this.state.pid) };
          this.view = null;
        } catch (problem) {
          const back = make("button", { type: "button", class: "back", click: () => this.change({ pid: "" }) }, "← Processes");
          this.place.replaceChildren(make("p", { class: "empty", role: "alert" }, String(problem instanceof Error ? problem.message : problem)), back);
          return;
        }
      }
      profile = this.loaded.profile;
    }
    document.title = `${profile.subject.name} - heaptap`;
    if (this.view === null) {
      this.view = new ProfileView(profile, {
        state: this.state,
        change: (part) => this.change(part),
        back: this.own !== null ? null : () => this.change({ ...DEFAULTS, zoom: [] }),
      });
      this.place.replaceChildren(this.view.element);
      return;
    }
    this.view.show(this.state);
  }

  private key(event: KeyboardEvent): void {
    const isTyping = event.target instanceof HTMLInputElement && event.target.type === "search";
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.view?.help.element.open === true) return;
    if (event.key === "Escape") {
      if (isTyping) (event.target as HTMLInputElement).blur();
      if (this.state.search !== "") this.change({ search: "" });
      else if (this.view === null) return;
      else if (this.state.zoom.length > 0) this.change({ zoom: this.state.zoom.slice(0, -1) });
      else if (this.state.focus !== "") this.change({ focus: "" });
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

async function fetchProfile(pid: string): Promise<Profile> {
  if (!/^\d+$/.test(pid)) throw new Error("The address names no process.");
  const answer = await fetch(`/pid/${pid}/profile.json`);
  if (!answer.ok) throw new Error(`Process ${pid}: ${(await answer.text()).trim()}`);
  return (await answer.json()) as Profile;
}

const data = document.getElementById("profile");
const page = new Page(data === null ? null : (JSON.parse(data.textContent ?? "null") as Profile));
// For tests, and for people with a console.
(window as unknown as { heaptap: Page }).heaptap = page;
