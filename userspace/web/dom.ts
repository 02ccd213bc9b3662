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

// Finds the same control after everything was drawn anew; "": there is nothing to tell it by.
export function selectorOf(element: Element | null): string {
  if (element === null) return "";
  if (element.id !== "") return `#${element.id}`;
  const { column, value } = (element as HTMLElement).dataset;
  if (column !== undefined) return `[data-column="${column}"]`;
  const group = element.parentElement?.getAttribute("aria-label");
  return value === undefined || group === null ? "" : `[aria-label="${group}"] > [data-value="${value}"]`;
}

// Buttons of which one is chosen.
export function choice<T extends string>(
  label: string,
  options: readonly [T, string][],
  chosen: T,
  choose: (value: T) => void,
): HTMLElement {
  const group = make("div", { class: "choice", role: "radiogroup", "aria-label": label });
  for (const [value, text] of options) {
    const isChosen = value === chosen;
    group.append(
      make(
        "button",
        { type: "button", role: "radio", "aria-checked": String(isChosen), "data-value": value, click: () => choose(value) },
        text,
      ),
    );
  }
  return group;
}
