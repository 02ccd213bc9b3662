// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/changes.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace heaptap::report {
namespace {

using profile::Context;
using profile::Estimate;
using profile::Profile;

absl::flat_hash_map<absl::Span<const uint64_t>, const Context*> ByFrames(const Profile& profile) {
  absl::flat_hash_map<absl::Span<const uint64_t>, const Context*> contexts;
  contexts.reserve(profile.contexts.size());
  for (const Context& context : profile.contexts) contexts[context.frames] = &context;
  return contexts;
}

// Samples stay when the interval of a process changes; but without a PID, different periods mean different runs.
bool HaveCommonSamples(const Profile& a, const Profile& b) {
  return a.pid == 0 || b.pid == 0 ? a.period == b.period : a.pid == b.pid;
}

Allocated AllocatedOf(const Profile& profile, const Context& context) {
  if (!profile.has_allocated) return {.samples = context.allocated_samples};
  const Estimate estimate = context.Allocated();
  return {.samples = estimate.samples, .variance = estimate.variance};
}

}  // namespace

Measure LiveChange(const Measure& after, const Measure& before, const Allocated& allocated_after,
                   const Allocated& allocated_before, bool have_common) {
  Measure change = {.bytes = after.bytes - before.bytes,
                    .objects = after.objects - before.objects,
                    .samples = after.samples + before.samples,
                    .variance = after.variance + before.variance};
  const uint64_t allocated = allocated_after.samples - allocated_before.samples;
  if (!have_common || allocated_after.samples == 0 || allocated_after.samples < allocated_before.samples) return change;
  const uint64_t appeared = std::min(after.samples, allocated);
  // The samples that were live before or were allocated since. Those that are no longer live have disappeared.
  const uint64_t seen = before.samples + allocated;
  const uint64_t disappeared = std::min(before.samples, seen > after.samples ? seen - after.samples : 0);
  change.samples = appeared + disappeared;
  double appeared_variance = 0;
  double disappeared_variance = 0;
  if (allocated_after.variance.has_value() && allocated_before.variance.has_value()) {
    const double more = std::max(*allocated_after.variance - *allocated_before.variance, 0.0);
    appeared_variance = std::min(after.variance, more);
    disappeared_variance = std::clamp(before.variance + more - after.variance, 0.0, before.variance);
  } else if (before.samples == 0) {
    appeared_variance = after.variance;
  } else {
    // The samples that disappeared count like the average of the earlier ones. The variance that the remaining samples
    // do not explain is new.
    disappeared_variance = before.variance * static_cast<double>(disappeared) / static_cast<double>(before.samples);
    appeared_variance = std::max(after.variance - (before.variance - disappeared_variance), 0.0);
  }
  change.variance = (appeared == 0 ? 0 : appeared_variance) + (disappeared == 0 ? 0 : disappeared_variance);
  return change;
}

std::vector<Measures> ChangesOf(const Profile& difference, const Profile& after, const Profile& before) {
  const auto later = ByFrames(after);
  const auto earlier = ByFrames(before);
  const bool have_common = HaveCommonSamples(after, before);
  const Context none;
  std::vector<Measures> changes;
  changes.reserve(difference.contexts.size());
  for (const Context& context : difference.contexts) {
    const auto in_after = later.find(context.frames);
    const auto in_before = earlier.find(context.frames);
    const Context& now = in_after == later.end() ? none : *in_after->second;
    const Context& then = in_before == earlier.end() ? none : *in_before->second;
    Measures& change = changes.emplace_back();
    change.before = ToMeasure(then.Live());
    if (context.threads.empty()) continue;
    const Measure live = ToMeasure(now.Live());
    change.live = LiveChange(live, change.before, AllocatedOf(after, now), AllocatedOf(before, then), have_common);
    change.allocated = ToMeasure(context.Allocated());
    change.freed = FreedOf(change.allocated, live, change.before);
  }
  return changes;
}

}  // namespace heaptap::report
