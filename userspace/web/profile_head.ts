// SPDX-License-Identifier: Apache-2.0
//
// The head of a profile: its name, its figures with their errors, links to other formats, warnings.
import { relativeText } from "./changes";
import { makeCoverage, makeUnknownCoverage } from "./coverage";
import { make } from "./dom";
import * as format from "./format";
import { total, totalBefore } from "./profile";
import { meanSize, Scene } from "./scene";

export function makeHead(scene: Scene): HTMLElement {
  const { subject } = scene.profile;
  const { back, state } = scene.host;
  const header = make("header", {});
  if (back !== null) header.append(make("button", { type: "button", class: "back", id: "back", click: back }, "← Processes"));
  // Folders of dumps say little, and take the room of the figures.
  const short = subject.name.replace(/(^|\s)\S*\//g, "$1");
  header.append(make("h1", { title: subject.name }, short), makeFacts(scene));
  if (subject.pid !== null && back !== null && state.at === 0 && state.service === "") header.append(makeDownloads(subject.pid));
  const { coverage } = subject;
  if (coverage !== undefined && coverage.length > 0) header.append(makeCoverage(coverage));
  // What is below stays where it is while moments of a process are chosen.
  else if (scene.host.timeline !== null && state.service === "" && state.base === "") header.append(makeUnknownCoverage());
  if (subject.warnings.length > 0) {
    const list = make("ul", {}, ...subject.warnings.map((warning) => make("li", {}, warning)));
    header.append(
      make("details", { class: "warnings" }, make("summary", {}, format.plural(subject.warnings.length, "warning")), list),
    );
  }
  return header;
}

function makeFacts(scene: Scene): HTMLElement {
  const { profile, whole } = scene;
  const { subject } = profile;
  const { value } = scene.host.state;
  const sum = total(profile, value);
  const facts = make("dl", { class: "facts" });
  const add = (name: string, text: string, detail: string): void => {
    facts.append(make("div", {}, make("dt", {}, name), make("dd", {}, text), make("dd", { class: "detail" }, detail)));
  };
  // Of what the filter asks for. A profile that cannot tell does not hold nothing.
  const addKnown = (name: string, text: string, detail: string): void => {
    if (scene.lack === "") add(name, text, detail);
    else add(name, "?", "not known");
  };
  const error = format.error(sum);
  const isDifference = subject.is_difference;
  addKnown(
    isDifference ? "Change of live memory" : value === "live" ? "Live" : "Allocated",
    format.signed(sum.bytes, "bytes", isDifference),
    error > 0 ? `± ${format.bytes(error)} standard error` : "exact",
  );
  if (isDifference) {
    const before = totalBefore(profile);
    const after = format.bytes(before.bytes + sum.bytes);
    add("Before", format.bytes(before.bytes), `after ${after}, ${relativeText(before, sum, "bytes")}`);
  }
  const mean = meanSize(sum, isDifference);
  addKnown("Objects", format.signed(sum.objects, "objects", isDifference), mean === null ? "" : `mean ${mean}`);
  addKnown(
    "Samples",
    format.count(sum.samples),
    subject.period > 1 ? `one every ${format.bytes(subject.period)}` : "every allocation",
  );
  // Whatever the measure is, so that nothing moves when it is switched.
  if (subject.resident_bytes !== null) {
    // Of live memory that nothing was written to, nothing is resident: the part knows it.
    const part = subject.coverage?.find((one) => one.name === "live")?.bytes;
    const percent = format.percent(part ?? total(whole, "live").bytes, subject.resident_bytes);
    add("Resident", format.bytes(subject.resident_bytes), `${percent} is live heap`);
  }
  return facts;
}

// The process's other documents, for other tools.
function makeDownloads(pid: number): HTMLElement {
  const links: [string, string][] = [
    ["heap", "heap_v2"],
    ["debug/pprof/heap", "pprof"],
    ["collapsed", "collapsed"],
    ["jeprof", "jeprof with names"],
    ["mtev/memory.json", "allocator"],
  ];
  return make("nav", { "aria-label": "Other formats" }, ...links.map(([path, name]) => make("a", { href: `/pid/${pid}/${path}` }, name)));
}
