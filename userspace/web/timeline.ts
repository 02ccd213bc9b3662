// SPDX-License-Identifier: Apache-2.0
//
// The history of a service as a picture: live memory stacked by its largest paths, resident memory and the limit of the
// memory cgroup as lines, marks. A click chooses a moment, a drag a range.
import { make } from "./dom";
import * as format from "./format";
import { History, nearest, PathHistory } from "./history";

const LAYERS = 7; // paths with a colour of their own
const HEIGHT = 132; // pixels
const FOOT = 18; // of them, for times
const SIDE = 52; // pixels at the left, for sizes
const HUES = [28, 210, 45, 165, 340, 265, 190];

export class Timeline {
  readonly element: HTMLElement;
  private readonly canvas = make("canvas", { "aria-label": "Timeline of live memory" });
  private readonly note = make("output", { class: "timeline-note" });
  private readonly top: number; // bytes
  private begin = -1; // time at which a drag began
  private width = 0;

  constructor(
    private readonly history: History,
    private readonly paths: PathHistory[],
    private readonly range: number[], // chosen: none, or two times
    private readonly choose: (range: number[]) => void,
  ) {
    let top = 1;
    for (const point of history.points) top = Math.max(top, point.live_bytes, point.rss_bytes ?? 0);
    this.top = top * 1.06;
    this.element = make("section", { class: "timeline", "aria-label": "Timeline" }, this.canvas, this.note);
    this.canvas.addEventListener("mousedown", (event) => {
      this.begin = this.toTime(event);
      event.preventDefault();
    });
    this.canvas.addEventListener("mousemove", (event) => this.move(event));
    this.canvas.addEventListener("mouseup", (event) => this.drop(event));
    new ResizeObserver(() => this.draw([])).observe(this.element);
  }

  // The place of a time, in pixels of the window; for tests.
  place(time: number): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return { x: box.left + this.toX(time), y: box.top + HEIGHT / 2 };
  }

  private first(): number {
    return this.history.points[0]?.time ?? 0;
  }

  private length(): number {
    return Math.max(1, (this.history.points[this.history.points.length - 1]?.time ?? 1) - this.first());
  }

  private toX(time: number): number {
    return SIDE + ((time - this.first()) / this.length()) * (this.width - SIDE);
  }

  private toY(bytes: number): number {
    return (HEIGHT - FOOT) * (1 - bytes / this.top);
  }

  private toTime(event: MouseEvent): number {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return this.first() + (Math.max(0, x - SIDE) / Math.max(1, this.width - SIDE)) * this.length();
  }

  private move(event: MouseEvent): void {
    const time = this.toTime(event);
    const at = nearest(this.history, time);
    if (at >= 0) {
      const point = this.history.points[at];
      const rss = point.rss_bytes === null ? "" : `, resident ${format.bytes(point.rss_bytes)}`;
      const mark = this.history.marks.find((one) => Math.abs(this.toX(one.time) - this.toX(time)) < 5);
      this.note.textContent =
        `${new Date(point.time * 1000).toLocaleTimeString()}  PID ${point.pid}  live ${format.bytes(point.live_bytes)}${rss}` +
        (mark === undefined ? "" : `  ▾ ${mark.kind} ${mark.text}`);
    }
    this.draw(this.begin < 0 ? [] : [this.begin, time]);
  }

  private drop(event: MouseEvent): void {
    if (this.begin < 0) return;
    const end = this.toTime(event);
    const times = [nearest(this.history, Math.min(this.begin, end)), nearest(this.history, Math.max(this.begin, end))];
    this.begin = -1;
    if (times[0] >= 0) this.choose(times.map((point) => this.history.points[point].time));
  }

  private draw(dragged: number[]): void {
    this.width = this.element.clientWidth;
    const context = this.canvas.getContext("2d");
    if (context === null || this.width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(HEIGHT * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${HEIGHT}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const isDark = style.getPropertyValue("--is-dark").trim() === "1";
    const faint = style.getPropertyValue("--faint");
    const { points } = this.history;
    const base = new Float64Array(points.length);
    this.paths.slice(0, LAYERS).forEach((path, i) => {
      this.fill(context, base, (at) => path.bytes[at], `hsl(${HUES[i]} ${isDark ? "42% 42%" : "60% 68%"})`);
    });
    this.fill(context, base, (at) => Math.max(0, points[at].live_bytes - base[at]), style.getPropertyValue("--line"));
    this.line(context, points.map((point) => point.rss_bytes), style.getPropertyValue("--text"), []);
    this.line(context, points.map((point) => point.limit_bytes), style.getPropertyValue("--accent"), [6, 4]);
    for (const mark of this.history.marks) {
      context.fillStyle = style.getPropertyValue("--accent");
      context.fillRect(this.toX(mark.time), 0, 1, HEIGHT - FOOT);
      context.fillText("▾", this.toX(mark.time) - 4, 9);
    }
    const chosen = dragged.length === 2 ? dragged : this.range;
    if (chosen.length === 2) {
      context.fillStyle = isDark ? "rgb(255 255 255 / 18%)" : "rgb(0 0 0 / 12%)";
      const from = this.toX(Math.min(...chosen));
      context.fillRect(from, 0, Math.max(2, this.toX(Math.max(...chosen)) - from), HEIGHT - FOOT);
    }
    context.fillStyle = faint;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      const bytes = (this.top / 1.06) * part;
      context.textAlign = "right";
      context.fillText(format.bytes(bytes), SIDE - 6, Math.max(7, this.toY(bytes)));
      context.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
      const time = this.first() + this.length() * part;
      context.fillText(new Date(time * 1000).toLocaleTimeString(), this.toX(time), HEIGHT - FOOT / 2);
    }
    context.textAlign = "left";
  }

  private fill(context: CanvasRenderingContext2D, base: Float64Array, value: (at: number) => number, color: string): void {
    const { points } = this.history;
    context.beginPath();
    for (let i = 0; i < points.length; i++) context.lineTo(this.toX(points[i].time), this.toY(base[i]));
    for (let i = points.length - 1; i >= 0; i--) {
      base[i] += value(i);
      context.lineTo(this.toX(points[i].time), this.toY(base[i]));
    }
    context.fillStyle = color;
    context.fill();
  }

  private line(context: CanvasRenderingContext2D, values: (number | null)[], color: string, dash: number[]): void {
    context.beginPath();
    let isDrawing = false;
    values.forEach((value, i) => {
      // A limit far above everything would make the picture flat.
      if (value === null || value > this.top) {
        isDrawing = false;
        return;
      }
      const [x, y] = [this.toX(this.history.points[i].time), this.toY(value)];
      if (isDrawing) context.lineTo(x, y);
      else context.moveTo(x, y);
      isDrawing = true;
    });
    context.strokeStyle = color;
    context.lineWidth = 1.4;
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
  }
}
