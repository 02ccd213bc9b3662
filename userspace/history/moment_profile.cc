// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/moment_profile.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "heaptap/contract.h"
#include "userspace/base/require.h"
#include "userspace/history/path_names.h"
#include "userspace/profile/estimate.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::history {
namespace {

// Each library has its own range of addresses.
constexpr uint64_t kBytesOfLibrary = uint64_t{1} << 32;

// The history keeps the paths that matter, and one row for all others.
constexpr char kOthers[] = "[all other call paths]";

}  // namespace

uint64_t MomentProfiles::AddressOf(const std::string& library, std::string path_key) {
  const std::string name(profile::FileName(library));
  const uint64_t number = libraries_.try_emplace(name, Library{libraries_.size() + 1, library}).first->second.number;
  // Call addresses are one below return addresses, so places are two apart.
  return addresses_.try_emplace(std::move(path_key), number * kBytesOfLibrary + 2 * addresses_.size() + 2)
      .first->second;
}

MomentProfile MomentProfiles::Make(const Timeline& moment) {
  HEAPTAP_REQUIRE(moment.points.size() == 1);
  const TimelinePoint& point = moment.points.front();
  MomentProfile result;
  result.profile.pid = point.pid;
  result.profile.has_allocated = false;
  result.profile.period = uint64_t{1} << std::min<uint32_t>(point.lg_sample, HEAPTAP_MAX_LG_SAMPLE);
  std::map<int64_t, std::vector<uint64_t>> paths;
  for (const TimelinePath& path : moment.paths) {
    std::vector<uint64_t>& addresses = paths[path.id];
    std::vector<profile::SourceFrame> names;
    std::string key;
    for (const TimelineFrame& frame : path.frames) {
      key += PathKey({&frame, 1});
      if (!frame.source.function.empty()) names.push_back(frame.source);
      if (frame.is_inlined) continue;
      const uint64_t call = AddressOf(frame.library, key);
      if (names.empty()) names.push_back({.function = profile::PlaceText(frame.library, frame.offset)});
      result.symbols[call] = std::exchange(names, {});
      addresses.push_back(call + 1);
    }
  }
  const uint64_t others = AddressOf("", kOthers);
  result.symbols[others] = {{.function = kOthers}};
  // The row of all others, and rows whose path is not known any more, have the same frame.
  struct Sum {
    profile::Estimate live;
    uint64_t allocated_samples = 0;
  };
  std::map<std::vector<uint64_t>, Sum> held;
  for (const auto& [id, row] : point.rows) {
    const auto path = paths.find(id);
    profile::Estimate estimate = {.samples = row.samples,
                                  .objects = static_cast<double>(row.live_objects),
                                  .bytes = static_cast<double>(row.live_bytes)};
    // If all objects have one size, their mean size is also the mean size of the sampled objects.
    const double size = estimate.objects > 0 ? estimate.bytes / estimate.objects : 0;
    estimate.sampled_bytes = profile::ToWhole(size * static_cast<double>(estimate.samples));
    estimate.variance = static_cast<double>(row.deviation) * static_cast<double>(row.deviation);
    result.profile.several_periods |= profile::HasFinerSamples(estimate, result.profile.period);
    Sum& sum = held[path == paths.end() ? std::vector<uint64_t>{others + 1} : path->second];
    sum.live += estimate;
    if (path != paths.end()) sum.allocated_samples += row.allocated_samples;
  }
  for (const auto& [frames, sum] : held) {
    result.profile.contexts.push_back(
        {.frames = frames, .threads = {{.live = sum.live}}, .allocated_samples = sum.allocated_samples});
  }
  for (const auto& [name, library] : libraries_) {
    if (name.empty()) continue;
    result.profile.mappings.push_back({.start = library.number * kBytesOfLibrary,
                                       .end = (library.number + 1) * kBytesOfLibrary,
                                       .path = library.path});
  }
  std::sort(result.profile.mappings.begin(), result.profile.mappings.end(),
            [](const elf::Mapping& a, const elf::Mapping& b) { return a.start < b.start; });
  return result;
}

}  // namespace heaptap::history
