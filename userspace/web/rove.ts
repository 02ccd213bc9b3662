// SPDX-License-Identifier: Apache-2.0
//
// A group of buttons as one stop of the Tab key: the arrow keys, Home and End move inside, as in toolbars and groups of
// radio buttons of WAI-ARIA. The stop is the button that is chosen, or else the one that had the focus last.

const STEPS: { [key: string]: number } = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

// Call it once for a group, whose children may change. `arrive` is called for the button that the keys moved to.
export function rove(group: HTMLElement, arrive: (button: HTMLElement) => void = () => undefined): void {
  group.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const buttons = buttonsOf(group);
    const at = buttons.indexOf(document.activeElement as HTMLElement);
    if (at < 0) return;
    const next = nextOf(event.key, at, buttons.length);
    if (next === null) return;
    event.preventDefault();
    event.stopPropagation();
    buttons[next].focus();
    arrive(buttons[next]);
  });
  group.addEventListener("focusin", (event) => {
    if (buttonsOf(group).includes(event.target as HTMLElement)) setStop(group, event.target as HTMLElement);
  });
}

// To be called when the children are others, or another one is chosen.
export function setStop(group: HTMLElement, stop: HTMLElement | null): void {
  const buttons = buttonsOf(group);
  const only = stop ?? buttons[0];
  for (const button of buttons) button.tabIndex = button === only ? 0 : -1;
}

// null: the key moves nowhere. Beyond the last one comes the first.
export function nextOf(key: string, at: number, count: number): number | null {
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  const step = STEPS[key];
  return step === undefined ? null : (at + step + count) % count;
}

function buttonsOf(group: HTMLElement): HTMLElement[] {
  return [...group.children].filter((child): child is HTMLElement => child instanceof HTMLButtonElement);
}
