// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/collapsed.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::formats {
namespace {

double ValueOf(const profile::Context& context, CollapsedValue value) {
  switch (value) {
    case CollapsedValue::kLiveBytes:
      return context.Live().bytes;
    case CollapsedValue::kLiveObjects:
      return context.Live().objects;
    case CollapsedValue::kAllocatedBytes:
      return context.Allocated().bytes;
    case CollapsedValue::kAllocatedObjects:
      return context.Allocated().objects;
    case CollapsedValue::kFreedBytes:
      return std::max(context.Allocated().bytes - context.Live().bytes, 0.0);
    case CollapsedValue::kFreedObjects:
      return std::max(context.Allocated().objects - context.Live().objects, 0.0);
  }
  return 0;
}

// flamegraph.pl takes a number at the end of a stack for the second value of a difference.
void HideNumberAtEnd(std::string& stack) {
  const size_t before_number = stack.find_last_not_of("0123456789.");
  if (before_number == std::string::npos || before_number + 1 == stack.size()) return;
  if (stack[before_number] == ' ') stack[before_number] = '_';
}

std::string Stack(const profile::Context& context, profile::FrameNames& names) {
  if (context.frames.empty()) return profile::kUnknownCallPath;
  std::string stack = context.truncated ? profile::kOuterFramesMissing : "";
  for (size_t frame = context.frames.size(); frame-- > 0;) {
    const std::vector<std::string>& at = names.At(profile::CallAddress(context.frames[frame]));
    for (size_t name = at.size(); name-- > 0;) {
      if (!stack.empty()) stack.push_back(';');
      const size_t begin = stack.size();
      stack.append(at[name]);
      std::replace(stack.begin() + begin, stack.end(), ';', ':');
    }
  }
  HideNumberAtEnd(stack);
  return stack;
}

}  // namespace

std::string Collapsed(const profile::Profile& profile, CollapsedValue value, const profile::FindSourceFrames& find) {
  profile::FrameNames names(profile, find);
  absl::flat_hash_map<std::string, double> sums;
  for (const profile::Context& context : profile.contexts) sums[Stack(context, names)] += ValueOf(context, value);

  std::vector<const std::pair<const std::string, double>*> lines;
  lines.reserve(sums.size());
  for (const auto& line : sums) lines.push_back(&line);
  std::sort(lines.begin(), lines.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
  std::string out;
  for (const auto* line : lines) {
    const uint64_t whole = profile::ToWhole(line->second);
    if (whole != 0) absl::StrAppend(&out, line->first, " ", whole, "\n");
  }
  return out;
}

}  // namespace heaptap::formats
