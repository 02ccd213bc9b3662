// SPDX-License-Identifier: Apache-2.0
//
// The history of a process or a service above its profile. A click chooses a moment, a drag a range; so do the arrow
// keys, with Shift for a range. The number of a layer, and its entry of the legend, show its call path alone.
import { choice } from "./choice";
import { make } from "./dom";
import * as format from "./format";
import { axisOf, History, Layer, layersOf, nearest, postMark } from "./history";
import { rove, setStop } from "./rove";
import { State } from "./state";
import { drawTimeline, Picture } from "./timeline_picture";

const HUES = [28, 210, 45, 165, 340, 265];
const NOWHERE = -1;

export interface Means {
  refresh(): void; // reads the history again
  now(): void; // reads the profile again, too
  compare: HTMLElement | null; // a button
  canMark: boolean;
}

export class Timeline {
  readonly element: HTMLElement;
  private readonly canvas = make("canvas", { id: "moments", tabindex: 0, role: "application", "aria-label": "Timeline: arrow keys choose a moment, with Shift a range" });
  private readonly note = make("output", { class: "timeline-note", "aria-live": "polite" });
  private readonly legend = make("div", { class: "legend", role: "toolbar", "aria-label": "Layers" });
  private picture: Picture;
  private dragged: number[] = []; // two points while the mouse is down
  private pressed: Layer | null = null; // the layer on whose number the mouse went down
  private pointed = NOWHERE; // where the mouse is, in pixels of the window

  constructor(
    private history: History,
    private state: State,
    private readonly change: (part: Partial<State>) => void,
    private readonly means: Means,
  ) {
    this.picture = pictureOf(history);
    this.element = make("section", { class: "timeline", "aria-label": "Timeline" }, this.controls(), this.canvas, this.note);
    this.canvas.addEventListener("mousedown", (event) => {
      this.pressed = this.numberedAt(event);
      if (this.pressed !== null) return;
      const point = this.pointAt(event.clientX);
      this.dragged = [point, point];
      event.preventDefault();
      this.canvas.focus({ preventScroll: true });
    });
    this.canvas.addEventListener("mousemove", (event) => this.move(event));
    this.canvas.addEventListener("mouseup", () => this.drop());
    this.canvas.addEventListener("click", (event) => {
      if (this.pressed !== null && this.numberedAt(event) === this.pressed) this.filterBy(this.pressed);
    });
    this.canvas.addEventListener("mouseleave", () => this.leave());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    rove(this.legend);
    this.drawLegend();
    this.say(this.chosen()[1]);
  }

  // The filter may have changed, but neither the subject nor the moment.
  show(state: State): void {
    this.state = state;
    this.drawLegend();
    this.draw();
  }

  // Shows the same subject at a later time; the elements stay, and so does the focus. Does nothing while the mouse
  // marks a range.
  update(history: History): void {
    if (this.dragged.length === 2) return;
    this.history = history;
    this.picture = pictureOf(history);
    this.drawLegend();
    this.draw();
    // Nobody wants to hear each point.
    this.note.setAttribute("aria-live", "off");
    this.say(this.pointed === NOWHERE ? this.chosen()[1] : this.pointAt(this.pointed));
  }

  draw(): void {
    const chosen = this.dragged.length === 2 ? this.dragged : this.state.at === 0 ? [] : this.chosen();
    drawTimeline(this.canvas, this.picture, chosen, this.state.path);
  }

  // The middle of a layer's number, in pixels of the window; for tests.
  placeOfNumber(layer: number): { x: number; y: number } | null {
    const box = this.canvas.getBoundingClientRect();
    const number = this.picture.numbers.find((one) => one.layer === layer);
    return number === undefined ? null : { x: box.left + number.x, y: box.top + number.y };
  }

  // The place of a point, in pixels of the window; for tests.
  place(point: number): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return { x: box.left + this.toX(point), y: box.top + box.height / 2 };
  }

  // The first and the last chosen point; the same one for a moment.
  private chosen(): number[] {
    const last = this.state.at === 0 ? this.history.points.length - 1 : nearest(this.history, this.state.at);
    return [this.state.from === 0 ? last : nearest(this.history, this.state.from), last];
  }

  private controls(): HTMLElement {
    const service = this.history.processes[0]?.service ?? "";
    const bar = make(
      "div",
      { class: "timeline-bar" },
      choice(
        "Time",
        [
          ["hour", "Hour"],
          ["day", "Day"],
          ["weeks", "2 weeks"],
          ["all", "All"],
        ],
        this.state.span,
        (span) => this.change({ span }),
      ),
      make("button", { type: "button", class: "back", id: "now", click: () => this.showNow() }, "Now"),
    );
    if (this.means.compare !== null) bar.append(this.means.compare);
    if (this.state.service === "" && service !== "") {
      const follow = (): void => this.change({ service, pid: "", at: 0, from: 0, zoom: [] });
      bar.append(make("button", { type: "button", class: "back", id: "service", click: follow }, `Service ${service}`));
    }
    bar.append(this.legend);
    if (this.means.canMark) bar.append(this.markField());
    return bar;
  }

  private showNow(): void {
    if (this.state.at === 0 && this.state.from === 0) this.means.now();
    else this.change({ at: 0, from: 0, zoom: [] });
  }

  // The elements stay as long as the layers do, and with them the focus.
  private drawLegend(): void {
    const { layers, colors } = this.picture;
    const key = layers.map((layer) => layer.path).join("\n");
    if (this.legend.dataset.layers !== key) {
      this.legend.dataset.layers = key;
      this.legend.replaceChildren(...layers.map((layer, i) => this.makeEntry(layer, i, colors[i])));
      setStop(this.legend, null);
    }
    layers.forEach((layer, i) => {
      if (layer.path !== "") this.legend.children[i].setAttribute("aria-pressed", String(layer.path === this.state.path));
    });
  }

  private makeEntry(layer: Layer, number: number, color: string): HTMLElement {
    const sample = make("span", { class: "sample" }, layer.path === "" ? "·" : String(number + 1));
    sample.style.background = color;
    if (layer.path === "") return make("span", { title: layer.name }, sample, layer.name);
    const title = `${layer.path}\nClick to show this call path alone, and again to show all.`;
    return make("button", { type: "button", title, "data-value": number + 1, click: () => this.filterBy(layer) }, sample, layer.name);
  }

  private filterBy(layer: Layer): void {
    this.change({ path: this.state.path === layer.path ? "" : layer.path, zoom: [] });
  }

  // The layer whose number is under the mouse.
  private numberedAt(event: MouseEvent): Layer | null {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { numbers, layers } = this.picture;
    const found = numbers.find((number) => Math.hypot(number.x - x, number.y - y) <= number.radius);
    return found === undefined ? null : layers[found.layer];
  }

  private markField(): HTMLElement {
    const field = make("input", { type: "text", id: "mark", maxlength: 200, placeholder: "Mark this moment", "aria-label": "Mark this moment" });
    return make(
      "form",
      {
        submit: (event) => {
          event.preventDefault();
          if (field.value === "") return;
          void postMark(field.value, this.state).then((problem) => {
            if (problem === "") this.means.refresh();
            else this.note.textContent = problem;
          });
        },
      },
      field,
    );
  }

  private toX(point: number): number {
    const { begin, end } = axisOf(this.history);
    return this.picture.left + ((this.history.points[point].time - begin) / (end - begin)) * this.picture.width;
  }

  // `left`: in pixels of the window.
  private pointAt(left: number): number {
    const { begin, end } = axisOf(this.history);
    const x = left - this.canvas.getBoundingClientRect().left - this.picture.left;
    return nearest(this.history, begin + (x / Math.max(1, this.picture.width)) * (end - begin));
  }

  private move(event: MouseEvent): void {
    this.pointed = event.clientX;
    const numbered = this.numberedAt(event);
    this.canvas.style.cursor = numbered === null ? "" : "pointer";
    this.canvas.title = numbered?.path ?? "";
    this.note.setAttribute("aria-live", "polite");
    const point = this.pointAt(event.clientX);
    if (this.dragged.length === 2) {
      this.dragged = [this.dragged[0], point];
      this.draw();
    }
    this.say(point);
  }

  private leave(): void {
    this.pointed = NOWHERE;
    this.dragged = [];
    this.draw();
    this.say(this.chosen()[1]);
  }

  private drop(): void {
    if (this.dragged.length !== 2) return;
    const [first, last] = this.dragged.sort((a, b) => a - b);
    this.dragged = [];
    this.choose(first, last);
  }

  private choose(first: number, last: number): void {
    const { points } = this.history;
    this.change({ at: points[last].time, from: first === last ? 0 : points[first].time, zoom: [] });
  }

  private key(event: KeyboardEvent): void {
    const step = ["ArrowLeft", "ArrowRight"].indexOf(event.key);
    if (step < 0) return;
    event.preventDefault();
    const [first, last] = this.chosen();
    const next = Math.min(this.history.points.length - 1, Math.max(0, last + (step === 0 ? -1 : 1)));
    this.choose(event.shiftKey ? Math.min(first, next) : next, event.shiftKey ? Math.max(first, next) : next);
  }

  private say(at: number): void {
    const point = this.history.points[at];
    const parts = [new Date(point.time * 1000).toLocaleString(), `live ${format.bytes(point.live_bytes)}`];
    if (point.rss_bytes !== null) parts.push(`resident ${format.bytes(point.rss_bytes)}`);
    if (point.limit_bytes !== null) parts.push(`limit ${format.bytes(point.limit_bytes)}`);
    if (point.processes > 1) parts.push(`${format.count(point.processes)} processes`);
    const near = this.history.marks.filter((mark) => nearest(this.history, mark.time) === at);
    for (const mark of near.slice(0, 3)) parts.push(`▾ ${mark.kind} ${mark.text}`);
    this.note.textContent = parts.join("   ");
  }
}

function pictureOf(history: History): Picture {
  const layers = layersOf(history);
  return { history, layers, colors: layers.map((layer, i) => colorOf(layer, i)), numbers: [], left: 0, width: 0, height: 0, top: 1 };
}

function colorOf(layer: Layer, number: number): string {
  return layer.path === "" ? "var(--line)" : `hsl(${HUES[number % HUES.length]} var(--layer))`;
}
