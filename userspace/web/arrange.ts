// SPDX-License-Identifier: Apache-2.0
//
// Whether the table stands beside the graph, or below it: below in a narrow window, and where the graph is so shallow
// that nothing would be below it otherwise. The arrangement depends on the whole profile: a filter, a zoom or a view
// does not change it.
const NARROW = "(max-width: 900px)";
const ROW = 2.1; // rem, as in flame.ts
const CHIPS = 3.6; // rem: the height of what is above the graph
const SHALLOW = 1 / 3; // of the height of the panes

// `rows`: the most rows that the graph can have.
export function arrange(panes: HTMLElement, rows: number): void {
  const update = (): void => {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const isShallow = (rows * ROW + CHIPS) * rem <= SHALLOW * panes.clientHeight;
    panes.classList.toggle("stacked", isShallow || window.matchMedia(NARROW).matches);
  };
  new ResizeObserver(update).observe(panes);
}
