// SPDX-License-Identifier: Apache-2.0
//
// Makes elements. Texts of programs become text nodes, never markup.

export type Child = Node | string;
export interface Attributes {
  [name: string]: string | number | boolean | ((event: Event) => void);
}

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

// Selectors that find the same control after everything was drawn anew, or else one that is close to it. The best
// selector comes first. Rows and chips have names of programs.
export function selectorsOf(element: Element | null): string[] {
  if (element === null) return [];
  if (element.id !== "") return [`#${element.id}`];
  const { column, value, row, chip, of } = (element as HTMLElement).dataset;
  if (column !== undefined) return [`[data-column="${column}"]`];
  if (row !== undefined) return [selectorOf("row", row), selectorOf("of", row), "tr[data-row]"];
  if (chip !== undefined) return [selectorOf("chip", chip), "[data-chip]", selectorOf("row", of ?? ""), "tr[data-row]"];
  const group = element.parentElement?.getAttribute("aria-label");
  return value === undefined || group === null ? [] : [`[aria-label="${group}"] > [data-value="${value}"]`];
}

function selectorOf(name: string, value: string): string {
  return `[data-${name}="${CSS.escape(value)}"]`;
}
