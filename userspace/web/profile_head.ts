// SPDX-License-Identifier: Apache-2.0
//
// The head of a profile: its name, its figures with their errors, links to other formats, warnings.
import { relativeText } from "./changes";
import { makeCoverage, makeUnknownCoverage } from "./coverage";
import { make } from "./dom";
import * as format from "./format";
import { Subject, total, totalBefore, Value } from "./profile";
import { meanSize, Scene } from "./scene";

const VALUES: { [value in Value]: string } = { live: "Live", allocated: "Allocated", freed: "Freed" };

export function makeHead(scene: Scene): HTMLElement {
  const { subject } = scene.profile;
  const { back, state, isLive, ending } = scene.host;
  const header = make("header", {});
  if (back !== null) header.append(make("button", { type: "button", class: "back", id: "back", click: back }, "← Processes"));
  // Folders of dumps say little, and take the room of the figures.
  const short = subject.name.replace(/(^|\s)\S*\//g, "$1");
  const title = make("div", {}, make("h1", { title: subject.name }, short));
  if (back !== null && state.at === 0) title.append(makeStanding(scene));
  header.append(title, makeFacts(scene));
  if (subject.pid !== null && isLive && ending === null) header.append(makeDownloads(subject.pid, subject.name));
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

// Says from which moment the figures are, and whether the process still runs.
function makeStanding(scene: Scene): HTMLElement {
  const { host, profile } = scene;
  const { ending, isLive, readAgain, state } = host;
  const texts: string[] = [];
  // The name of an earlier moment has its time.
  if (isLive && profile.subject.time !== undefined) texts.push(`as of ${format.clock(profile.subject.time)}`);
  if (ending !== null) {
    const whose = state.base === "" ? "" : `PID ${ending.pid} `;
    const when = ending.time === null ? "" : ` ${format.clock(ending.time)}`;
    texts.push([`${whose}ended${when}`, ending.how].filter((text) => text !== "").join(", "));
  }
  const standing = make("p", { class: "standing", role: "status" }, texts.join("; "));
  if (readAgain !== null) standing.append(make("button", { type: "button", class: "back", id: "read-again", click: readAgain }, "Read again"));
  return standing;
}

// Where samples of several intervals are summed, none of them is the interval.
function samplingOf({ period, several_periods }: Subject): string {
  const last = period > 1 ? `one every ${format.bytes(period)}` : "every allocation";
  return several_periods === true ? `several intervals, at last ${last}` : last;
}

function makeFacts(scene: Scene): HTMLElement {
  const { profile, whole, keeps } = scene;
  const { subject } = profile;
  const { value } = scene.host.state;
  const sum = total(profile, value, keeps);
  const facts = make("dl", { class: "facts" });
  const add = (name: string, text: string, detail: string): void => {
    facts.append(make("div", {}, make("dt", {}, name), make("dd", {}, text), make("dd", { class: "detail" }, detail)));
  };
  // Adds a figure that depends on the filter. If the profile cannot tell the figure, it is unknown, not zero.
  const addKnown = (name: string, text: string, detail: string): void => {
    if (scene.lack === "") add(name, text, detail);
    else add(name, "?", "not known");
  };
  // Adds what was allocated in a range of the history. This is known for the process as a whole, but for no part of it.
  const addAllocated = (bytes: number): void => {
    const { focus, path } = scene.host.state;
    const freed = Math.max(0, bytes - total(whole, "live").bytes);
    if (focus === "" && path === "") add("Allocated", format.bytes(bytes), `freed ${format.bytes(freed)}; paths not known`);
    else add("Allocated", "?", "not known by call path");
  };
  const error = format.error(sum);
  const isSampled = subject.period > 1;
  const isDifference = subject.is_difference;
  addKnown(
    isDifference ? "Change of live memory" : VALUES[value],
    format.signed(sum.bytes, "bytes", isDifference),
    error > 0 ? `± ${format.bytes(error)} standard error` : isSampled && sum.samples === 0 ? "no sample" : "exact",
  );
  if (isDifference) {
    const before = totalBefore(profile, keeps);
    const after = format.bytes(before.bytes + sum.bytes);
    add("Before", format.bytes(before.bytes), `after ${after}, ${relativeText(before, sum, "bytes")}`);
    if (subject.allocated_bytes !== undefined) addAllocated(subject.allocated_bytes);
  }
  const mean = meanSize(sum, isDifference);
  addKnown("Objects", format.signed(sum.objects, "objects", isDifference), mean === null ? "" : `mean ${mean}`);
  addKnown(
    "Samples",
    format.count(sum.samples),
    samplingOf(subject),
  );
  // This figure is shown whatever the measure is, so that nothing moves when the measure is switched.
  if (subject.resident_bytes !== null) {
    // Live memory that nothing was written to is not resident. The part of the coverage leaves it out.
    const part = subject.coverage?.find((one) => one.name === "live")?.bytes;
    const percent = format.percent(part ?? total(whole, "live").bytes, subject.resident_bytes);
    add("Resident", format.bytes(subject.resident_bytes), `${percent} is live heap`);
  }
  return facts;
}

// The process's other documents, for other tools, under names that say what they are.
function makeDownloads(pid: number, subject: string): HTMLElement {
  const links: [string, string, string, string][] = [
    ["heap", "heap_v2", "heap", "For jeprof and heaptap report, without names"],
    ["heap?format=pprof", "pprof", "pb.gz", "For pprof and speedscope"],
    ["collapsed", "collapsed", "collapsed.txt", "For flamegraph.pl: one call path a line"],
    ["jeprof", "jeprof with names", "symbolized.heap", "For jeprof on another machine"],
    ["allocator.json", "allocator", "allocator.json", "Figures of the allocator: bytes in use, free, and its own"],
  ];
  // The name has the form of a dump's name. The command may have any letter.
  const name = `${subject.replace(/ \(PID \d+\)$/, "").replace(/[^\w.-]/g, "_")}.${pid}`;
  const entries = links.map(([path, text, ending, title]) =>
    make("a", { href: `/pid/${pid}/${path}`, download: `${name}.${ending}`, title }, text),
  );
  return make("nav", { "aria-label": "Other formats" }, ...entries);
}
