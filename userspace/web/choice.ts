// SPDX-License-Identifier: Apache-2.0
//
// Buttons, one of which is chosen: a group of radio buttons, one stop of the Tab key. The arrow keys choose.
import { Attributes, make } from "./dom";
import { rove, setStop } from "./rove";

// `lackOf`: why a button cannot be chosen, as a sentence; "": it can be.
export function choice<T extends string>(
  label: string,
  options: readonly [T, string][],
  chosen: T,
  choose: (value: T) => void,
  lackOf: (value: T) => string = () => "",
): HTMLElement {
  const group = make("div", { class: "choice", role: "radiogroup", "aria-label": label });
  for (const [value, text] of options) {
    const lack = lackOf(value);
    const attributes: Attributes = { type: "button", role: "radio", "aria-checked": String(value === chosen), "data-value": value };
    // Not `disabled`: the keyboard reaches it, so that a screen reader says why.
    if (lack !== "") Object.assign(attributes, { "aria-disabled": "true", "aria-description": lack, title: lack });
    else attributes.click = () => choose(value);
    group.append(make("button", attributes, text));
  }
  setStop(group, group.querySelector<HTMLElement>('[aria-checked="true"]'));
  rove(group, (button) => button.click());
  return group;
}
