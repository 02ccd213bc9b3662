// SPDX-License-Identifier: Apache-2.0
//
// Copies names and call paths for other programs, and says so.
import { make } from "./dom";

const SHOWN_MILLISECONDS = 2500;

export class Copier {
  readonly element = make("output", { class: "copied", role: "status", hidden: true });
  private timer = 0;

  // null: nothing is pointed at.
  async copy(text: string | null): Promise<void> {
    if (text === null) return this.say("Point at a box or a row first: with the mouse, or with Tab and the arrow keys.");
    this.say((await write(text)) ? `Copied: ${text}` : "The browser does not let this page copy.");
  }

  private say(text: string): void {
    this.element.textContent = text;
    this.element.hidden = false;
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => (this.element.hidden = true), SHOWN_MILLISECONDS);
  }
}

// A page that comes from another machine without TLS has no clipboard.
async function write(text: string): Promise<boolean> {
  const { clipboard } = navigator as { clipboard?: Clipboard };
  return clipboard === undefined ? false : clipboard.writeText(text).then(() => true, () => false);
}
