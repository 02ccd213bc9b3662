// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/difference.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/base/require.h"

namespace heaptap::profile {
namespace {

uint64_t Growth(uint64_t after, uint64_t before) { return after > before ? after - before : 0; }

Estimate LiveDifference(const Estimate& after, const Estimate& before) {
  return {.samples = Growth(after.samples, before.samples),
          .sampled_bytes = Growth(after.sampled_bytes, before.sampled_bytes),
          .objects = after.objects - before.objects,
          .bytes = after.bytes - before.bytes,
          .variance = std::max(0.0, after.variance - before.variance)};
}

Estimate AllocatedBetween(const Estimate& after, const Estimate& before) {
  if (after.samples < before.samples) return after;
  return {.samples = after.samples - before.samples,
          .sampled_bytes = Growth(after.sampled_bytes, before.sampled_bytes),
          .objects = std::max(0.0, after.objects - before.objects),
          .bytes = std::max(0.0, after.bytes - before.bytes),
          .variance = std::max(0.0, after.variance - before.variance)};
}

// REQUIRES: both are sorted by tid.
std::vector<ThreadShare> SharesBetween(absl::Span<const ThreadShare> after, absl::Span<const ThreadShare> before) {
  HEAPTAP_REQUIRE(std::ranges::is_sorted(after, {}, &ThreadShare::tid));
  HEAPTAP_REQUIRE(std::ranges::is_sorted(before, {}, &ThreadShare::tid));
  std::vector<ThreadShare> shares;
  while (!after.empty() || !before.empty()) {
    const bool in_after = !after.empty() && (before.empty() || after[0].tid <= before[0].tid);
    const bool in_before = !before.empty() && (after.empty() || before[0].tid <= after[0].tid);
    const ThreadShare later = in_after ? after[0] : ThreadShare{.tid = before[0].tid};
    const ThreadShare earlier = in_before ? before[0] : ThreadShare{};
    const ThreadShare share = {.tid = later.tid,
                               .live = LiveDifference(later.live, earlier.live),
                               .allocated = AllocatedBetween(later.allocated, earlier.allocated)};
    if (share != ThreadShare{.tid = share.tid}) shares.push_back(share);
    if (in_after) after.remove_prefix(1);
    if (in_before) before.remove_prefix(1);
  }
  return shares;
}

StackEnds EndsBetween(const StackEnds& after, const StackEnds& before) {
  StackEnds ends;
  for (size_t end = 0; end < ends.samples.size(); ++end) {
    ends.samples[end] = Growth(after.samples[end], before.samples[end]);
  }
  ends.without_stack = Growth(after.without_stack, before.without_stack);
  return ends;
}

std::vector<elf::Mapping> MappingsOfBoth(const Profile& after, const Profile& before) {
  elf::Mappings both;
  for (const elf::Mapping& mapping : before.mappings) both.Add(mapping);
  // Added last, because the later one of two overlapping mappings stays.
  for (const elf::Mapping& mapping : after.mappings) both.Add(mapping);
  return std::vector<elf::Mapping>(both.begin(), both.end());
}

}  // namespace

Profile Difference(const Profile& after, const Profile& before, Unchanged unchanged) {
  absl::flat_hash_map<absl::Span<const uint64_t>, const Context*> earlier;
  earlier.reserve(before.contexts.size());
  for (const Context& context : before.contexts) earlier[context.frames] = &context;

  Profile result = {.pid = after.pid,
                    .period = after.period,
                    .several_periods = after.several_periods || before.several_periods || after.period != before.period,
                    .has_allocated = after.has_allocated && before.has_allocated,
                    .raw = after.raw,
                    .mappings = MappingsOfBoth(after, before),
                    .thread_names = after.thread_names,
                    .stack_ends = EndsBetween(after.stack_ends, before.stack_ends),
                    .warnings = after.warnings};
  result.thread_names.insert(before.thread_names.begin(), before.thread_names.end());

  auto add = [&result, unchanged](const Context& context, bool truncated, std::vector<ThreadShare> threads) {
    if (threads.empty() && unchanged == Unchanged::kLeaveOut) return;
    result.contexts.push_back({.frames = context.frames, .truncated = truncated, .threads = std::move(threads)});
  };
  for (const Context& context : after.contexts) {
    auto match = earlier.find(context.frames);
    if (match == earlier.end()) {
      add(context, context.truncated, SharesBetween(context.threads, {}));
    } else {
      add(context, context.truncated || match->second->truncated,
          SharesBetween(context.threads, match->second->threads));
      earlier.erase(match);
    }
  }
  // In the order of `before`, not in the order of the map.
  for (const Context& context : before.contexts) {
    if (earlier.contains(context.frames)) add(context, context.truncated, SharesBetween({}, context.threads));
  }
  return result;
}

}  // namespace heaptap::profile
