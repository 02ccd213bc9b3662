// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/growth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/words/json_text.h"
#include "userspace/json/json.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/changes.h"

namespace heaptap::cli {
namespace {

using json::Json;
using profile::Context;
using profile::Estimate;

// Smaller changes are rounding errors.
bool IsNothing(const report::Measure& live) { return std::fabs(live.bytes) < 0.5 && std::fabs(live.objects) < 0.5; }

// Whether two mappings of one path at one address are of the same file.
bool IsSameFile(const elf::Mapping& a, const elf::Mapping& b) {
  if (!a.build_id.empty() && !b.build_id.empty()) return a.build_id == b.build_id;
  return a.inode == 0 || b.inode == 0 || a.inode == b.inode;
}

int64_t Whole(double estimate) {
  const auto whole = static_cast<int64_t>(profile::ToWhole(std::fabs(estimate)));
  return estimate < 0 ? -whole : whole;
}

Json ToJson(const Estimate& live) { return {{"bytes", Whole(live.bytes)}, {"objects", Whole(live.objects)}}; }

// The contexts that changed, the largest growth first.
std::vector<size_t> Changed(const Growth& growth, report::Unit sort_by) {
  const auto live = [&](size_t i) -> const report::Measure& { return growth.measures[i].live; };
  std::vector<size_t> changed;
  for (size_t i = 0; i < growth.measures.size(); i++) {
    if (!IsNothing(live(i))) changed.push_back(i);
  }
  std::ranges::sort(changed, [&](size_t a, size_t b) {
    const double of_a = report::Of(live(a), sort_by);
    const double of_b = report::Of(live(b), sort_by);
    if (of_a != of_b) return of_a > of_b;
    return growth.difference.contexts[a].frames < growth.difference.contexts[b].frames;
  });
  return changed;
}

}  // namespace

bool IsSameProcess(const profile::Profile& before, const profile::Profile& after) {
  if (before.mappings.empty() || after.mappings.empty()) return true;
  // [vsyscall] has the same address in all processes.
  const auto is_everywhere = [](const elf::Mapping& mapping) { return mapping.path == "[vsyscall]"; };
  std::map<absl::string_view, std::map<uint64_t, const elf::Mapping*>> earlier;  // by path and start
  for (const elf::Mapping& mapping : before.mappings) {
    if (!is_everywhere(mapping)) earlier[mapping.path][mapping.start] = &mapping;
  }
  std::map<absl::string_view, bool> stays;  // whether a path of both has an address that it had before
  for (const elf::Mapping& mapping : after.mappings) {
    const auto places = earlier.find(mapping.path);
    if (is_everywhere(mapping) || places == earlier.end()) continue;
    const auto same = places->second.find(mapping.start);
    if (same != places->second.end() && !IsSameFile(*same->second, mapping)) return false;
    stays[mapping.path] |= same != places->second.end();
  }
  const auto staying = std::ranges::count_if(stays, [](const auto& path) { return path.second; });
  // A library may have been loaded again at another address.
  return 2 * staying > std::ssize(stays);
}

Growth FindGrowth(const profile::Profile& before, const profile::Profile& after, profile::Unchanged unchanged) {
  Growth growth = {.before = before.Live(),
                   .after = after.Live(),
                   .difference = profile::Difference(after, before, unchanged),
                   .measures = {}};
  growth.measures = report::ChangesOf(growth.difference, after, before);
  return growth;
}

report::Subject ToSubject(const Growth& growth, std::string name) {
  report::Subject subject = {.name = std::move(name),
                             .period = growth.difference.period,
                             .several_periods = growth.difference.several_periods,
                             .is_difference = true,
                             .has_allocated = growth.difference.has_allocated,
                             .before = growth.before,
                             .after = growth.after};
  subject.warnings.reserve(growth.difference.warnings.size());
  for (const std::string& warning : growth.difference.warnings) subject.warnings.push_back(base::Printable(warning));
  return subject;
}

std::string GrowthJson(const Growth& growth, size_t top, report::Unit sort_by, const profile::FindSourceFrames& find) {
  profile::FrameNames names(growth.difference, find);
  const std::vector<size_t> changed = Changed(growth, sort_by);
  Json paths = Json::List();
  for (size_t i = 0; i < (top == 0 ? changed.size() : std::min(top, changed.size())); i++) {
    const Context& context = growth.difference.contexts[changed[i]];
    const report::Measure& live = growth.measures[changed[i]].live;
    Json frames = Json::List();
    for (const uint64_t frame : context.frames) {
      const uint64_t address = profile::CallAddress(frame);
      frames.Add({{"address", absl::StrCat("0x", absl::Hex(address))}, {"names", names.At(address)}});
    }
    paths.Add({{"bytes", Whole(live.bytes)},
               {"objects", Whole(live.objects)},
               {"error", live.Error()},
               {"samples", live.samples},
               {"frames", std::move(frames)}});
  }
  const Estimate total = {.objects = growth.after.objects - growth.before.objects,
                          .bytes = growth.after.bytes - growth.before.bytes};
  return ToText(Json{{"schema_version", json::kSchemaVersion},
                     {"before", ToJson(growth.before)},
                     {"after", ToJson(growth.after)},
                     {"difference", ToJson(total)},
                     {"changed_call_paths", changed.size()},
                     {"call_paths", std::move(paths)}});
}

}  // namespace heaptap::cli
