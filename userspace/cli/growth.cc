// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/growth.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/cli/client.h"
#include "userspace/cli/json_text.h"
#include "userspace/export/frame_names.h"
#include "userspace/export/json.h"
#include "userspace/profile/difference.h"
#include "userspace/report/human.h"

namespace heaptap::cli {
namespace {

using exporter::Json;
using profile::Context;
using profile::Estimate;
using report::HumanBytes;

// Smaller changes are rounding errors.
bool IsNothing(const Estimate& live) { return std::fabs(live.bytes) < 0.5 && std::fabs(live.objects) < 0.5; }

int64_t Whole(double estimate) {
  const auto whole = static_cast<int64_t>(profile::ToWhole(std::fabs(estimate)));
  return estimate < 0 ? -whole : whole;
}

std::string SignedBytes(double bytes) { return absl::StrCat(bytes > 0 ? "+" : "", HumanBytes(bytes)); }

std::string SignedObjects(double objects) { return absl::StrFormat("%+d", Whole(objects)); }

Json ToJson(const Estimate& live) { return {{"bytes", Whole(live.bytes)}, {"objects", Whole(live.objects)}}; }

Estimate Total(const Growth& growth) {
  return {.objects = growth.after.objects - growth.before.objects, .bytes = growth.after.bytes - growth.before.bytes};
}

size_t Shown(const Growth& growth, size_t top) { return std::min(top, growth.difference.contexts.size()); }

}  // namespace

absl::Status CheckSameProcess(const profile::Profile& before, const profile::Profile& after) {
  if (before.mappings.empty() || after.mappings.empty()) return absl::OkStatus();
  std::set<std::pair<uint64_t, absl::string_view>> places;
  for (const elf::Mapping& mapping : before.mappings) places.emplace(mapping.start, mapping.path);
  for (const elf::Mapping& mapping : after.mappings) {
    // [vsyscall] has the same address in all processes.
    if (mapping.path != "[vsyscall]" && places.contains({mapping.start, mapping.path})) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "expected two profiles of the same process, but these have no mapping in common");
}

Growth FindGrowth(const profile::Profile& before, const profile::Profile& after, SortBy sort_by) {
  Growth growth = {.before = before.Live(), .after = after.Live(), .difference = profile::Difference(after, before)};
  std::vector<std::pair<Estimate, Context>> changed;
  for (Context& context : growth.difference.contexts) {
    const Estimate live = context.Live();
    if (!IsNothing(live)) changed.emplace_back(live, std::move(context));
  }
  std::sort(changed.begin(), changed.end(), [sort_by](const auto& a, const auto& b) {
    const double of_a = sort_by == SortBy::kBytes ? a.first.bytes : a.first.objects;
    const double of_b = sort_by == SortBy::kBytes ? b.first.bytes : b.first.objects;
    return of_a != of_b ? of_a > of_b : a.second.frames < b.second.frames;
  });
  growth.difference.contexts.clear();
  for (auto& [live, context] : changed) growth.difference.contexts.push_back(std::move(context));
  return growth;
}

std::vector<uint64_t> CallAddresses(const Growth& growth, size_t top) {
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < Shown(growth, top); i++) {
    for (const uint64_t frame : growth.difference.contexts[i].frames) addresses.push_back(exporter::CallAddress(frame));
  }
  return addresses;
}

std::string GrowthText(const Growth& growth, size_t top, const exporter::FindSourceFrames& find) {
  const Estimate total = Total(growth);
  std::string text = absl::StrCat("total ", SignedBytes(total.bytes), " in ", SignedObjects(total.objects),
                                  " objects: ", HumanBytes(growth.before.bytes), " in ", Whole(growth.before.objects),
                                  " objects before, ", HumanBytes(growth.after.bytes), " in ",
                                  Whole(growth.after.objects), " after\n");
  const std::vector<Context>& contexts = growth.difference.contexts;
  if (contexts.empty()) return text;
  absl::StrAppendFormat(&text, "%10s  %10s  %s\n", "BYTES", "OBJECTS", "CALL PATH");
  exporter::FrameNames names(growth.difference, find);
  for (size_t i = 0; i < Shown(growth, top); i++) {
    const Estimate live = contexts[i].Live();
    std::string figures = absl::StrFormat("%10s  %10s", SignedBytes(live.bytes), SignedObjects(live.objects));
    const auto add = [&text, &figures](absl::string_view name) {
      absl::StrAppend(&text, figures, "  ", name, "\n");
      figures.assign(figures.size(), ' ');
    };
    for (const uint64_t frame : contexts[i].frames) {
      for (const std::string& name : names.At(exporter::CallAddress(frame))) add(name);
    }
    if (contexts[i].frames.empty()) add(exporter::kUnknownCallPath);
  }
  const size_t rest = contexts.size() - Shown(growth, top);
  if (rest > 0) absl::StrAppend(&text, "and ", rest, " more call paths (see --top)\n");
  return text;
}

std::string GrowthJson(const Growth& growth, size_t top, const exporter::FindSourceFrames& find) {
  exporter::FrameNames names(growth.difference, find);
  Json paths = Json::List();
  for (size_t i = 0; i < Shown(growth, top); i++) {
    const Context& context = growth.difference.contexts[i];
    Json frames = Json::List();
    for (const uint64_t frame : context.frames) {
      const uint64_t address = exporter::CallAddress(frame);
      frames.Add({{"address", absl::StrCat("0x", absl::Hex(address))}, {"names", names.At(address)}});
    }
    Json path = ToJson(context.Live());
    path.Set("frames", std::move(frames));
    paths.Add(std::move(path));
  }
  return ToText(Json{{"schema_version", exporter::kSchemaVersion},
                     {"before", ToJson(growth.before)},
                     {"after", ToJson(growth.after)},
                     {"difference", ToJson(Total(growth))},
                     {"changed_call_paths", growth.difference.contexts.size()},
                     {"call_paths", std::move(paths)}});
}

}  // namespace heaptap::cli
