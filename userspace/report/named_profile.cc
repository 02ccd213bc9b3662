// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/named_profile.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/require.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/root_names.h"

namespace heaptap::report {
namespace {

Measures ToMeasures(const profile::Estimate& live, const profile::Estimate& allocated) {
  Measures measures = {.live = ToMeasure(live), .allocated = ToMeasure(allocated)};
  measures.freed = FreedOf(measures.allocated, measures.live);
  return measures;
}

}  // namespace

NamedProfile::NamedProfile(const profile::Profile& profile, const profile::FindSourceFrames& find,
                           absl::Span<const Measures> measures, Roots roots, CutPaths cut_paths) {
  HEAPTAP_REQUIRE(measures.empty() || roots == Roots::kNone);
  AddText("");
  paths_.reserve(profile.contexts.size());
  for (size_t i = 0; i < profile.contexts.size(); i++) {
    const profile::Context& context = profile.contexts[i];
    Path path = {.truncated = context.truncated};
    for (const uint64_t frame : context.frames) {
      AppendFrames(profile, find, profile::CallAddress(frame), path.frames);
    }
    if (cut_paths == CutPaths::kMarked && path.truncated && !path.frames.empty()) {
      path.frames.push_back(AddFrame({.function = AddText(profile::kOuterFramesMissing), .has_symbol = true}));
    }
    if (roots == Roots::kThreads) {
      AddPathsOfThreads(profile, context, path);
      continue;
    }
    if (roots != Roots::kNone) {
      AddPathsOfBlocks(context, path, roots);
      continue;
    }
    path.measures = measures.empty() ? ToMeasures(context.Live(), context.Allocated()) : measures[i];
    paths_.push_back(std::move(path));
  }
  for (const Path& path : paths_) total_ += path.measures;
  // Only needed for making paths.
  at_address_ = {};
  text_ids_ = {};
  frame_ids_ = {};
}

void NamedProfile::AddPathBelow(const Path& path, std::string root, const Measures& measures) {
  Path& own = paths_.emplace_back(path);
  if (own.frames.empty()) own.frames.push_back(AddFrame({.function = AddText(profile::kUnknownCallPath)}));
  own.frames.push_back(AddFrame({.function = AddText(std::move(root))}));
  own.measures = measures;
}

void NamedProfile::AddPathsOfThreads(const profile::Profile& profile, const profile::Context& context,
                                     const Path& path) {
  for (const profile::ThreadShare& share : context.threads) {
    AddPathBelow(path, NameOfThread(profile, share.tid), ToMeasures(share.live, share.allocated));
  }
}

void NamedProfile::AddPathsOfBlocks(const profile::Context& context, const Path& path, Roots roots) {
  std::map<uint64_t, profile::Estimate> sums;  // by size or age
  for (const profile::BlockShare& share : context.blocks) {
    sums[roots == Roots::kSizes ? share.size : share.age] += share.live;
  }
  for (const auto& [key, live] : sums) {
    AddPathBelow(path, roots == Roots::kSizes ? NameOfSize(key) : NameOfAge(static_cast<uint32_t>(key)),
                 {.live = ToMeasure(live), .allocated = {}});
  }
}

void NamedProfile::AppendFrames(const profile::Profile& profile, const profile::FindSourceFrames& find,
                                uint64_t address, std::vector<FrameId>& frames) {
  const auto [entry, is_new] = at_address_.try_emplace(address);
  std::vector<FrameId>& here = entry->second;
  if (is_new) {
    const elf::Mapping* mapping = profile::FindMapping(profile.mappings, address);
    const TextId library = mapping == nullptr ? 0 : AddText(base::Printable(mapping->path));
    const std::vector<profile::SourceFrame> found = profile::FramesAt(find, address);
    for (size_t i = 0; i < found.size(); i++) {
      const profile::SourceFrame& frame = found[i];
      const std::string& name = frame.function.empty() ? frame.linkage_name : frame.function;
      if (name.empty()) continue;
      here.push_back(AddFrame({.function = AddText(base::Printable(name)),
                               .file = AddText(base::Printable(frame.file)),
                               .line = frame.line,
                               .library = library,
                               .is_inline = i + 1 < found.size(),
                               .has_symbol = true}));
    }
    if (here.empty()) {
      here.push_back(AddFrame({.function = AddText(profile::NameWithoutSymbol(mapping, address)), .library = library}));
    }
  }
  frames.insert(frames.end(), here.begin(), here.end());
}

TextId NamedProfile::AddText(std::string text) {
  const auto [entry, is_new] = text_ids_.try_emplace(std::move(text), static_cast<TextId>(texts_.size()));
  if (is_new) texts_.push_back(entry->first);
  return entry->second;
}

FrameId NamedProfile::AddFrame(const NamedFrame& frame) {
  const auto [entry, is_new] = frame_ids_.try_emplace(frame, static_cast<FrameId>(frames_.size()));
  if (is_new) frames_.push_back(frame);
  return entry->second;
}

}  // namespace heaptap::report
