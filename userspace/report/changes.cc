// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/changes.h"

#include <algorithm>
#include <cstdint>

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

// The variance of `changed` of the samples, which count like all of them.
double VarianceOf(uint64_t changed, const Measure& all) {
  return all.samples == 0 ? 0 : all.variance * static_cast<double>(changed) / static_cast<double>(all.samples);
}

bool HaveCommonSamples(const Profile& a, const Profile& b) {
  return a.period == b.period && (a.pid == b.pid || a.pid == 0 || b.pid == 0);
}

uint64_t AllocatedSamples(const Profile& profile, const Context& context) {
  return profile.has_allocated ? context.Allocated().samples : context.allocated_samples;
}

}  // namespace

Measure LiveChange(const Measure& after, const Measure& before, uint64_t allocated_after, uint64_t allocated_before,
                   bool have_common) {
  uint64_t appeared = after.samples;
  uint64_t disappeared = before.samples;
  if (have_common && allocated_after > 0 && allocated_after >= allocated_before) {
    const uint64_t allocated = allocated_after - allocated_before;
    appeared = std::min(after.samples, allocated);
    // What was there or was allocated, and is no longer there.
    const uint64_t seen = before.samples + allocated;
    disappeared = std::min(before.samples, seen > after.samples ? seen - after.samples : 0);
  }
  return {.bytes = after.bytes - before.bytes,
          .objects = after.objects - before.objects,
          .samples = appeared + disappeared,
          .variance = VarianceOf(appeared, after) + VarianceOf(disappeared, before)};
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
    change.before = ToMeasure(then.Live(), before.period);
    if (context.threads.empty()) continue;
    const Measure live = ToMeasure(now.Live(), after.period);
    change.live =
        LiveChange(live, change.before, AllocatedSamples(after, now), AllocatedSamples(before, then), have_common);
    change.allocated = ToMeasure(context.Allocated(), difference.period);
    change.freed = FreedOf(change.allocated, live, change.before);
  }
  return changes;
}

}  // namespace heaptap::report
