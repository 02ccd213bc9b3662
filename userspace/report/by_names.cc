// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/by_names.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "userspace/profile/estimate.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/rows.h"
#include "userspace/report/selection.h"

namespace heaptap::report {
namespace {

// Each library has its own range of addresses.
constexpr uint64_t kBytesOfLibrary = uint64_t{1} << 32;

struct Held {
  profile::Estimate live = {};
  bool truncated = false;
};

}  // namespace

uint64_t ByNames::AddressOf(const std::string& function, const std::string& library) {
  const uint64_t number = libraries_.try_emplace(library, libraries_.size() + 1).first->second;
  // Call addresses are one below return addresses, so functions are two apart.
  return addresses_.try_emplace(function, number * kBytesOfLibrary + 2 * addresses_.size() + 2).first->second;
}

ByNames::Made ByNames::Make(const profile::Profile& profile, const profile::FindSourceFrames& find) {
  const NamedProfile named(profile, find);
  const std::vector<Path> paths = *Select(named, {.fold = true});
  Made made = {.profile = {.pid = profile.pid,
                           .period = profile.period,
                           .several_periods = profile.several_periods,
                           .has_allocated = false,
                           .stack_ends = profile.stack_ends,
                           .warnings = profile.warnings}};
  const Show show;
  RowNumbers names(named, show);
  std::map<std::vector<uint64_t>, Held> held;
  for (size_t i = 0; i < paths.size(); i++) {
    std::vector<uint64_t> frames;
    frames.reserve(paths[i].frames.size());
    for (const FrameId id : paths[i].frames) {
      const std::string& name = names.Name(names.At(id));
      const uint64_t call = AddressOf(name, std::string(named.text(named.frame(id).library)));
      made.symbols.try_emplace(call, std::vector{profile::SourceFrame{.function = name}});
      frames.push_back(call + 1);
    }
    Held& sum = held[std::move(frames)];
    sum.live += profile.contexts[i].Live();
    sum.truncated |= paths[i].truncated;
  }
  for (const auto& [frames, sum] : held) {
    made.profile.contexts.push_back({.frames = frames, .truncated = sum.truncated, .threads = {{.live = sum.live}}});
  }
  for (const auto& [library, number] : libraries_) {
    if (library.empty()) continue;
    made.profile.mappings.push_back(
        {.start = number * kBytesOfLibrary, .end = (number + 1) * kBytesOfLibrary, .path = library});
  }
  std::ranges::sort(made.profile.mappings, {}, &elf::Mapping::start);
  return made;
}

}  // namespace heaptap::report
