// SPDX-License-Identifier: Apache-2.0
//
// Marks what a search matches, and says how much that is in total.
import * as format from "./format";
import { Flame } from "./graph_pane";
import { eachPath } from "./names";
import { columnsOf, total } from "./profile";
import { compile, Scene } from "./scene";

export function drawSearch(scene: Scene, output: HTMLOutputElement, flames: Flame[]): void {
  const { profile, names, keeps } = scene;
  const { state } = scene.host;
  output.textContent = "";
  if (state.search === "") {
    for (const { graph } of flames) graph.search(null);
    return;
  }
  const expression = compile(state.search);
  if (expression === null) {
    output.textContent = "not a regular expression";
    return;
  }
  const matches = names.texts.map((text) => expression.test(text));
  const column = columnsOf(profile.paths, state.value)[state.unit];
  let sum = 0;
  eachPath(profile, names, (path, here, _frames, count) => {
    if (!keeps(path)) return;
    for (let i = 0; i < count; i++) {
      if (!matches[here[i]]) continue;
      sum += column[path];
      return;
    }
  });
  const whole = total(profile, state.value, keeps)[state.unit];
  output.textContent = `${format.signed(sum, state.unit, profile.subject.is_difference)} (${format.percent(sum, whole)}) match`;
  for (const { tree, graph } of flames) graph.search((node) => matches[tree.name[node]] === true);
}
