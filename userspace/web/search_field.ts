// SPDX-License-Identifier: Apache-2.0
//
// The field of the search. It stays while everything around it is drawn again, so that the browser keeps the state of
// the field: the cursor, what can be undone, and letters that are being composed.
import { make } from "./dom";

// Typing must rest this long before anything is drawn: a large profile takes longer than a letter.
const REST_MILLISECONDS = 150;

export class SearchField {
  readonly element: HTMLInputElement;
  private rest = 0; // a timer; 0: what was typed has been passed on

  constructor(private readonly change: (text: string) => void) {
    this.element = make("input", {
      type: "search",
      id: "search",
      placeholder: "Search (regular expression)   /",
      "aria-label": "Search",
      input: () => this.wait(),
      // A key that is not a letter takes effect after what was typed.
      keydown: (event) => (["Enter", "Escape"].includes((event as KeyboardEvent).key) ? this.pass() : undefined),
    });
  }

  show(text: string): void {
    if (this.rest === 0 && this.element.value !== text) this.element.value = text;
  }

  private wait(): void {
    clearTimeout(this.rest);
    this.rest = window.setTimeout(() => this.pass(), REST_MILLISECONDS);
  }

  private pass(): void {
    if (this.rest === 0) return;
    clearTimeout(this.rest);
    this.rest = 0;
    // If the field is not connected, something else is shown by now.
    if (this.element.isConnected) this.change(this.element.value);
  }
}
