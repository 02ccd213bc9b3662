// SPDX-License-Identifier: Apache-2.0
//
// A flame graph on a canvas. A box is as wide as the share of its node; the root is on top, or at the bottom if
// flipped. Boxes narrower than half a pixel are not drawn, so a frame takes time only for what can be seen. The narrow
// boxes of one parent, and everything beyond them, are one grey box.
//
// With the keyboard a cursor moves from box to box. It has an outline and a tooltip while the graph has the focus and
// the keyboard was used; after a click the cursor is where the click was, unseen.
import { make } from "./dom";
import { childrenOf, Tree } from "./tree";
import { stepOf, walk } from "./walk";

export interface Look {
  label: string; // for people who cannot see it
  rootText: string;
  isFlipped: boolean;
  isDifference: boolean;
  colorOf(node: number): string; // the group of a box: boxes of one group have one colour
  textOf(node: number): string;
  isMarked(node: number): boolean; // inlined
}

// Where a tooltip may stand, in pixels of the window: below `below` or, if that is better, above `above`.
export interface Anchor {
  left: number;
  above: number;
  below: number;
  prefersAbove: boolean;
}

export interface Events {
  hover(node: number | null, anchor: Anchor): void;
  arrive(node: number, anchor: Anchor): void; // the cursor of the keyboard
  choose(node: number): void;
}

// In tenths of the root's font size, which are pixels in a window of usual size (style.css).
const ROW = 21;
const TEXT = 12;
const LETTER = 6.2; // the width of one, about
const TEXT_INDENT = 6;
const MIN_TEXT_WIDTH = 26; // narrower boxes have no room for a letter and an ellipsis
const MIN_WIDTH = 0.5; // pixels
const ZOOM_MILLISECONDS = 140;
const MIN_CURSOR = 9; // pixels: the outline of a narrow box is wider than the box
const NOWHERE: Anchor = { left: 0, above: 0, below: 0, prefersAbove: false };
// Hues that people with any kind of colour vision tell apart by their lightness too.
const HUES = [28, 210, 45, 165, 340, 265, 190, 95, 12, 235];

function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}

export class FlameGraph {
  readonly element: HTMLElement;
  private readonly canvas = make("canvas", { "aria-hidden": "true" });
  // As high as all rows, so that the browser scrolls; the canvas stays in view.
  private readonly rows = make("div", { class: "flame-rows" }, this.canvas);
  private readonly begins: Float64Array;
  private readonly ends: Float64Array;
  private readonly reach: Int32Array; // the greatest depth below a node
  private readonly fills = new Map<string, string>();
  private left = 0; // of the part that is shown, as a share of the root
  private right = 1;
  private zoomed = 0;
  private hovered = -1;
  private cursor = -1; // -1: nowhere yet
  private isCursorShown = false;
  private found: ((node: number) => boolean) | null = null;
  private animation = 0;
  private width = 0;
  private height = 0;
  private scale = 1; // pixels, of a tenth of the root's font size
  private row = ROW; // pixels
  frameMilliseconds = 0; // of the last drawing

  constructor(
    private readonly tree: Tree,
    private readonly look: Look,
    private readonly events: Events,
  ) {
    this.begins = new Float64Array(tree.size);
    this.ends = new Float64Array(tree.size);
    this.ends[0] = 1;
    this.reach = Int32Array.from(tree.depth);
    for (let node = tree.size - 1; node > 0; node--) {
      const parent = tree.parent[node];
      if (this.reach[node] > this.reach[parent]) this.reach[parent] = this.reach[node];
    }
    const whole = tree.weight[0] || 1;
    // A parent comes before its children.
    for (let node = 0; node < tree.size; node++) {
      let at = this.begins[node];
      for (let i = tree.firstChild[node]; i < tree.firstChild[node + 1]; i++) {
        const child = tree.childList[i];
        this.begins[child] = at;
        at += tree.weight[child] / whole;
        this.ends[child] = at;
      }
    }
    this.element = make(
      "div",
      { class: "flame", tabindex: 0, role: "application", "aria-roledescription": "flame graph", "aria-label": look.label },
      this.rows,
    );
    this.element.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("mousemove", (event) => this.move(event));
    this.canvas.addEventListener("mouseleave", () => this.leave());
    this.canvas.addEventListener("click", (event) => {
      const node = this.nodeAt(event);
      if (node === null) return;
      this.cursor = node;
      this.isCursorShown = false;
      this.events.choose(node);
    });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("focus", () => {
      if (this.element.matches(":focus-visible")) this.isCursorShown = true;
      this.showCursor();
    });
    this.element.addEventListener("blur", () => {
      this.events.hover(null, NOWHERE);
      this.draw();
    });
    this.measure();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  // Shows this node and what is below it across the whole width.
  zoom(node: number, isAnimated: boolean): void {
    this.zoomed = node;
    const from = [this.left, this.right];
    const to = [this.begins[node], this.ends[node]];
    cancelAnimationFrame(this.animation);
    const begin = performance.now();
    const step = (): void => {
      const part = isAnimated ? Math.min(1, (performance.now() - begin) / ZOOM_MILLISECONDS) : 1;
      const eased = part * (2 - part);
      this.left = from[0] + (to[0] - from[0]) * eased;
      this.right = from[1] + (to[1] - from[1]) * eased;
      this.draw();
      if (part < 1) this.animation = requestAnimationFrame(step);
    };
    step();
  }

  // Highlights the nodes that match; null: none.
  search(found: ((node: number) => boolean) | null): void {
    this.found = found;
    this.draw();
  }

  // Where the keyboard is, for a graph that is drawn in place of this one; null: it is elsewhere.
  heldCursor(): { node: number; isShown: boolean } | null {
    if (document.activeElement !== this.element) return null;
    return { node: this.cursor < 0 ? this.zoomed : this.cursor, isShown: this.isCursorShown };
  }

  // Moves the keyboard here. The tooltip comes when the graph knows its size.
  takeCursor(node: number, isShown: boolean): void {
    this.cursor = node;
    this.isCursorShown = isShown;
    this.element.focus({ preventScroll: true });
  }

  // The box that the keyboard or else the mouse is on; -1: none.
  pointed(): number {
    return this.hasCursor() ? this.cursor : this.hovered;
  }

  private hasCursor(): boolean {
    return this.isCursorShown && document.activeElement === this.element;
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const step = stepOf(event.key, this.look.isFlipped);
    if (step === null && event.key !== "Enter") return;
    event.preventDefault(); // of scrolling
    if (this.cursor < 0) this.cursor = this.zoomed;
    this.isCursorShown = true;
    if (step === null) {
      this.events.choose(this.cursor);
      return;
    }
    this.cursor = walk(this.tree, this.cursor, step, (node) => this.isSeen(node));
    this.showCursor();
  }

  private isSeen(node: number): boolean {
    const begin = Math.max(0, this.toX(this.begins[node]));
    return Math.min(this.width, this.toX(this.ends[node])) - begin >= MIN_WIDTH;
  }

  private showCursor(): void {
    if (!this.hasCursor() || this.width === 0) return;
    if (this.cursor < 0 || !this.isSeen(this.cursor)) this.cursor = this.zoomed;
    const top = this.toY(this.tree.depth[this.cursor]);
    if (top < 0) this.element.scrollTop += top;
    else if (top + this.row > this.height) this.element.scrollTop += top + this.row - this.height;
    this.draw();
    const box = this.canvas.getBoundingClientRect();
    const left = box.left + Math.max(0, this.toX(this.begins[this.cursor])) + this.row / 2;
    const y = box.top + this.toY(this.tree.depth[this.cursor]);
    // The tooltip does not cover the boxes that the next keys lead to.
    this.events.arrive(this.cursor, { left, above: y - 2 * this.row, below: y + 3 * this.row, prefersAbove: this.look.isFlipped });
  }

  // The middle of a node's box, in pixels of the window; for tests.
  place(node: number): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    const middle = (Math.max(this.begins[node], this.left) + Math.min(this.ends[node], this.right)) / 2;
    return { x: box.left + this.toX(middle), y: box.top + this.toY(this.tree.depth[node]) + this.row / 2 };
  }

  // The element is as high as its rows, as far as there is room.
  private measure(): void {
    this.scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 10;
    this.row = Math.round(ROW * this.scale);
    this.rows.style.height = `${(this.reach[0] + 1) * this.row}px`;
  }

  private resize(): void {
    const ratio = window.devicePixelRatio || 1;
    this.measure();
    this.width = this.element.clientWidth;
    this.height = this.element.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    if (this.look.isFlipped) this.element.scrollTop = this.element.scrollHeight;
    this.draw();
    this.showCursor();
  }

  private toX(share: number): number {
    return ((share - this.left) / (this.right - this.left || 1)) * this.width;
  }

  private toY(depth: number): number {
    const bottom = Math.max((this.reach[0] + 1) * this.row, this.height);
    return (this.look.isFlipped ? bottom - (depth + 1) * this.row : depth * this.row) - this.element.scrollTop;
  }

  private nodeAt(event: MouseEvent): number | null {
    const box = this.canvas.getBoundingClientRect();
    const share = this.left + ((event.clientX - box.left) / this.width) * (this.right - this.left);
    let node = 0;
    for (;;) {
      const top = this.toY(this.tree.depth[node]);
      const y = event.clientY - box.top;
      if (y >= top && y < top + this.row) return node;
      const next = childrenOf(this.tree, node).find((child) => share >= this.begins[child] && share < this.ends[child]);
      if (next === undefined) return null;
      node = next;
    }
  }

  private move(event: MouseEvent): void {
    // The browser repeats the last position when boxes move under a mouse that rests.
    if (this.hasCursor() && event.movementX === 0 && event.movementY === 0) return;
    const node = this.nodeAt(event);
    if ((node ?? -1) !== this.hovered) {
      this.hovered = node ?? -1;
      this.canvas.style.cursor = node === null ? "default" : "pointer";
      this.draw();
    }
    const { clientX: x, clientY: y } = event;
    this.events.hover(node, { left: x + 14, above: y - 10, below: y + 18, prefersAbove: false });
  }

  private leave(): void {
    this.hovered = -1;
    this.draw();
    this.events.hover(null, NOWHERE);
    this.showCursor();
  }

  private fillOf(node: number, isDark: boolean): string {
    const key = this.look.isDifference ? String(this.change(node)) : this.look.colorOf(node) + this.look.textOf(node);
    let fill = this.fills.get(key);
    if (fill === undefined) {
      fill = this.look.isDifference ? this.differenceFill(node, isDark) : this.groupFill(node, isDark);
      this.fills.set(key, fill);
    }
    return fill;
  }

  // How much of what changed in the node grew: 1, nothing but growth; -1, nothing but shrinking.
  private change(node: number): number {
    return this.tree.weight[node] === 0 ? 0 : Math.round((10 * this.tree.bytes[node]) / this.tree.weight[node]) / 10;
  }

  private differenceFill(node: number, isDark: boolean): string {
    const change = Math.max(-1, Math.min(1, this.change(node)));
    const lightness = isDark ? 32 + 12 * Math.abs(change) : 88 - 18 * Math.abs(change);
    return `hsl(${change >= 0 ? 28 : 215} ${Math.round(80 * Math.abs(change))}% ${lightness}%)`;
  }

  private groupFill(node: number, isDark: boolean): string {
    // Functions of one group differ a little, so that neighbours can be told apart.
    const own = hash(this.look.textOf(node));
    const hue = HUES[hash(this.look.colorOf(node)) % HUES.length] + (own % 23) - 11;
    const shade = (own >>> 8) % 12;
    return isDark ? `hsl(${hue} 38% ${27 + shade}%)` : `hsl(${hue} 62% ${70 + shade}%)`;
  }

  private draw(): void {
    if (this.width === 0) return;
    const begin = performance.now();
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    const style = getComputedStyle(document.documentElement);
    const isDark = style.getPropertyValue("--is-dark").trim() === "1";
    const text = style.getPropertyValue("--box-text");
    const marked = style.getPropertyValue("--found");
    const line = style.getPropertyValue("--background");
    const grey = style.getPropertyValue("--line");
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.textBaseline = "middle";
    const font = `${TEXT * this.scale}px system-ui, sans-serif`;
    const indent = TEXT_INDENT * this.scale;
    const rest: number[] = [0];
    for (let node = rest.pop(); node !== undefined; node = rest.pop()) {
      const x = Math.max(0, this.toX(this.begins[node]));
      const end = Math.min(this.width, this.toX(this.ends[node]));
      if (end - x < MIN_WIDTH) continue;
      const y = this.toY(this.tree.depth[node]);
      if (this.look.isFlipped ? y + this.row < 0 : y > this.height) continue;
      this.drawNarrow(context, grey, node, this.pushWide(node, rest));
      if (y + this.row < 0 || y > this.height) continue;
      const isAbove = this.tree.depth[node] < this.tree.depth[this.zoomed];
      context.globalAlpha = isAbove ? 0.55 : 1;
      const isFound = this.found !== null && node > 0 && this.found(node);
      if (this.found !== null && !isFound) context.globalAlpha *= 0.45;
      context.fillStyle = isFound ? marked : node === 0 ? style.getPropertyValue("--root") : this.fillOf(node, isDark);
      const gap = end - x > 3 ? 1 : 0;
      context.fillRect(x, y, end - x - gap, this.row - 1);
      if (node === this.hovered) {
        context.strokeStyle = text;
        context.lineWidth = 1.5;
        context.strokeRect(x + 0.75, y + 0.75, end - x - gap - 1.5, this.row - 2.5);
      }
      if (node > 0 && this.look.isMarked(node) && end - x > 6) {
        context.fillStyle = line;
        context.fillRect(x, y, 3 * this.scale, this.row - 1);
      }
      if (end - x < MIN_TEXT_WIDTH * this.scale) continue;
      context.fillStyle = text;
      context.font = this.look.isMarked(node) && node > 0 ? `italic ${font}` : font;
      const label = node === 0 ? this.look.rootText : this.look.textOf(node);
      context.fillText(this.fit(context, label, end - x - 2 * indent), x + indent, y + this.row / 2);
    }
    context.globalAlpha = 1;
    if (this.hasCursor() && this.cursor >= 0) this.drawCursor(context, text, line);
    this.frameMilliseconds = performance.now() - begin;
  }

  // Adds the children that are wide enough to be drawn, and returns their number. The other children come after them.
  private pushWide(node: number, rest: number[]): number {
    const children = childrenOf(this.tree, node);
    const least = (MIN_WIDTH / this.width) * (this.right - this.left);
    for (let i = 0; i < children.length; i++) {
      if (this.ends[children[i]] - this.begins[children[i]] < least) return i;
      rest.push(children[i]);
    }
    return children.length;
  }

  // Draws the children from number `first` on as one box, as deep as they are.
  private drawNarrow(context: CanvasRenderingContext2D, color: string, node: number, first: number): void {
    const narrow = childrenOf(this.tree, node).subarray(first);
    if (narrow.length === 0) return;
    const x = Math.max(0, this.toX(this.begins[narrow[0]]));
    const end = Math.min(this.width, this.toX(this.ends[narrow[narrow.length - 1]]));
    if (end - x < MIN_WIDTH) return;
    const reach = narrow.reduce((most, child) => Math.max(most, this.reach[child]), 0);
    const depth = this.tree.depth[node];
    const top = this.toY(this.look.isFlipped ? reach : depth + 1);
    context.globalAlpha = 1;
    context.fillStyle = color;
    context.fillRect(x, top, end - x, (reach - depth) * this.row - 1);
  }

  // Two lines, a dark and a light one, can be seen on every colour.
  private drawCursor(context: CanvasRenderingContext2D, dark: string, light: string): void {
    const begin = Math.max(0, this.toX(this.begins[this.cursor]));
    const end = Math.min(this.width, this.toX(this.ends[this.cursor]));
    const width = Math.max(end - begin, MIN_CURSOR);
    const x = Math.max(0, Math.min((begin + end - width) / 2, this.width - width));
    const y = this.toY(this.tree.depth[this.cursor]);
    for (const [inset, lineWidth, color] of [
      [1, 2, dark],
      [2.5, 1, light],
    ] as const) {
      context.lineWidth = lineWidth;
      context.strokeStyle = color;
      context.strokeRect(x + inset, y + inset, width - 2 * inset, this.row - 1 - 2 * inset);
    }
  }

  private fit(context: CanvasRenderingContext2D, label: string, width: number): string {
    let length = Math.min(label.length, Math.ceil((width / (LETTER * this.scale)) * 1.4));
    if (length === label.length && context.measureText(label).width <= width) return label;
    while (length > 0 && context.measureText(`${label.slice(0, length)}…`).width > width) length--;
    return length === 0 ? "" : `${label.slice(0, length)}…`;
  }
}
