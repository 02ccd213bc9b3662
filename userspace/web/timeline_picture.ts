// SPDX-License-Identifier: Apache-2.0
//
// Draws a timeline: live bytes by layer, resident memory and the limit as lines, marks, and what is chosen. Layers have
// numbers, so that nobody has to tell colours apart.
import * as format from "./format";
import { axisOf, History, Layer } from "./history";

export interface Picture {
  history: History;
  layers: Layer[];
  colors: string[]; // of the layers, as CSS has them
  // Filled in by drawing, in pixels of CSS: where the numbers of layers are, and where the points are.
  numbers: { layer: number; x: number; y: number; radius: number }[];
  left: number;
  width: number;
  height: number;
  top: number; // bytes at the upper edge
}

const ROOM = 1.06; // above the highest point
const RADIUS = 0.8; // of a number's disc, in rem
const FADED = 0.35; // the opacity of what is not shown below

// `path`: the path of the layer that is shown alone; "": all layers are shown.
export function drawTimeline(canvas: HTMLCanvasElement, picture: Picture, chosen: number[], path: string): void {
  const context = canvas.getContext("2d");
  const box = canvas.getBoundingClientRect();
  if (context === null || box.width === 0) return;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(document.documentElement);
  const rem = parseFloat(style.fontSize);
  const { history, layers } = picture;
  const { points } = history;
  picture.left = 5.2 * rem;
  picture.width = box.width - picture.left - rem;
  picture.height = box.height - 1.8 * rem;
  picture.top = ROOM * Math.max(1, ...points.map((point) => Math.max(point.live_bytes, point.rss_bytes ?? 0)));
  const { begin: first, end } = axisOf(history);
  const length = end - first;
  const toX = (time: number): number => picture.left + ((time - first) / length) * picture.width;
  const toY = (bytes: number): number => picture.height * (1 - bytes / picture.top);
  const text = style.getPropertyValue("--text");
  const accent = style.getPropertyValue("--accent");
  context.font = `${1.1 * rem}px system-ui, sans-serif`;
  context.textBaseline = "middle";

  const base = new Float64Array(points.length);
  picture.numbers = [];
  layers.forEach((layer, number) => {
    context.globalAlpha = path === "" || path === layer.path ? 1 : FADED;
    const widest = drawLayer(context, history, layer, base, toX, toY, resolve(picture.colors[number], canvas));
    if (layer.path === "" || toY(0) - toY(layer.bytes[widest]) < 2 * RADIUS * rem) return;
    const x = Math.min(Math.max(toX(points[widest].time), picture.left + rem), picture.left + picture.width - rem);
    picture.numbers.push({ layer: number, x, y: toY(base[widest] - layer.bytes[widest] / 2), radius: RADIUS * rem });
  });
  context.globalAlpha = 1;
  // The numbers are drawn above all layers, because a layer may cover the edge of another one.
  for (const { layer, x, y, radius } of picture.numbers) drawNumber(context, style, layer + 1, x, y, radius);
  drawLine(context, points.map((point) => [toX(point.time), point.rss_bytes === null ? null : toY(point.rss_bytes)]), text, []);
  // A limit far above everything would make the picture flat.
  drawLine(context, points.map((point) => [toX(point.time), point.limit_bytes === null || point.limit_bytes > picture.top ? null : toY(point.limit_bytes)]), accent, [6, 4]);

  context.fillStyle = accent;
  for (const mark of history.marks) {
    if (mark.time < first || mark.time > first + length) continue;
    context.fillRect(toX(mark.time), 0, 1, picture.height);
    context.textAlign = "center";
    context.fillText(mark.kind === "end" ? "■" : mark.kind === "start" ? "▸" : "▾", toX(mark.time), 0.6 * rem);
  }
  if (chosen.length === 2) {
    const [from, to] = [...chosen].sort((a, b) => a - b).map((point) => toX(points[point].time));
    context.fillStyle = style.getPropertyValue("--chosen");
    context.fillRect(from - 1, 0, Math.max(2, to - from + 2), picture.height);
    context.strokeStyle = text;
    context.strokeRect(from - 1, 0, Math.max(2, to - from + 2), picture.height);
  }
  context.fillStyle = style.getPropertyValue("--faint");
  for (const part of [0, 0.5, 1]) {
    const bytes = (picture.top / ROOM) * part;
    context.textAlign = "right";
    context.fillText(format.bytes(bytes), picture.left - 0.6 * rem, Math.max(0.7 * rem, toY(bytes)));
    context.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
    context.fillText(clock(first + length * part, length), toX(first + length * part), box.height - 0.9 * rem);
  }
}

function drawNumber(context: CanvasRenderingContext2D, style: CSSStyleDeclaration, number: number, x: number, y: number, radius: number): void {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = style.getPropertyValue("--panel");
  context.fill();
  context.fillStyle = style.getPropertyValue("--text");
  context.textAlign = "center";
  context.fillText(String(number), x, y);
}

function clock(time: number, length: number): string {
  const date = new Date(time * 1000);
  return length > 86400 ? date.toLocaleDateString() : date.toLocaleTimeString();
}

// A canvas knows no variables of CSS.
function resolve(color: string, canvas: HTMLCanvasElement): string {
  canvas.style.color = color;
  const resolved = getComputedStyle(canvas).color;
  canvas.style.color = "";
  return resolved;
}

// Draws a layer on top of `base` and adds it there. Returns the point at which it is thickest.
function drawLayer(
  context: CanvasRenderingContext2D,
  history: History,
  layer: Layer,
  base: Float64Array,
  toX: (time: number) => number,
  toY: (bytes: number) => number,
  color: string,
): number {
  const { points } = history;
  context.beginPath();
  points.forEach((point, i) => context.lineTo(toX(point.time), toY(base[i])));
  let widest = 0;
  for (let i = points.length - 1; i >= 0; i--) {
    base[i] += layer.bytes[i];
    if (layer.bytes[i] > layer.bytes[widest]) widest = i;
    context.lineTo(toX(points[i].time), toY(base[i]));
  }
  context.fillStyle = color;
  context.fill();
  return widest;
}

function drawLine(context: CanvasRenderingContext2D, places: [number, number | null][], color: string, dash: number[]): void {
  context.beginPath();
  let isDrawing = false;
  for (const [x, y] of places) {
    if (y === null) isDrawing = false;
    else if (isDrawing) context.lineTo(x, y);
    else {
      context.moveTo(x, y);
      isDrawing = true;
    }
  }
  context.strokeStyle = color;
  context.lineWidth = 1.4;
  context.setLineDash(dash);
  context.stroke();
  context.setLineDash([]);
}
