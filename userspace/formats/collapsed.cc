// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/collapsed.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::formats {
namespace {

// A blank, a 64-bit number, a newline.
constexpr uint64_t kMaxValueBytes = 22;

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

// None: the stack is longer than `most`.
std::optional<std::string> Stack(const profile::Context& context, profile::FrameNames& names, uint64_t most) {
  if (context.frames.empty()) return profile::kUnknownCallPath;
  std::string stack = context.truncated ? profile::kOuterFramesMissing : "";
  for (size_t frame = context.frames.size(); frame-- > 0;) {
    const std::vector<std::string>& at = names.At(profile::CallAddress(context.frames[frame]));
    for (size_t name = at.size(); name-- > 0;) {
      if (at[name].size() > most - std::min<uint64_t>(most, stack.size())) return std::nullopt;
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

absl::StatusOr<std::string> CollapsedWithin(uint64_t most, const profile::Profile& profile, CollapsedValue value,
                                            const profile::FindSourceFrames& find) {
  profile::FrameNames names(profile, find);
  absl::flat_hash_map<std::string, double> sums;
  uint64_t bytes = 0;
  for (const profile::Context& context : profile.contexts) {
    std::optional<std::string> stack = Stack(context, names, most);
    const uint64_t more = stack.has_value() ? stack->size() + kMaxValueBytes : most;
    const bool fits = stack.has_value() && (more <= most - bytes || sums.contains(*stack));
    if (!fits) {
      return absl::OutOfRangeError(absl::StrCat("as collapsed stacks the profile would take more than ", most >> 20,
                                                " MiB; choose another format, such as pprof"));
    }
    const auto [line, is_new] = sums.try_emplace(*std::move(stack), 0.0);
    line->second += ValueOf(context, value);
    if (is_new) bytes += more;
  }

  std::vector<std::pair<std::string, double>> lines;
  lines.reserve(sums.size());
  while (!sums.empty()) {
    auto line = sums.extract(sums.begin());
    lines.emplace_back(std::move(line.key()), line.mapped());
  }
  std::ranges::sort(lines);
  std::string out;
  out.reserve(bytes);
  for (auto& [stack, sum] : lines) {
    const uint64_t whole = profile::ToWhole(sum);
    if (whole != 0) absl::StrAppend(&out, stack, " ", whole, "\n");
    stack = {};
  }
  return out;
}

std::string Collapsed(const profile::Profile& profile, CollapsedValue value, const profile::FindSourceFrames& find) {
  return *CollapsedWithin(UINT64_MAX, profile, value, find);
}

}  // namespace heaptap::formats
