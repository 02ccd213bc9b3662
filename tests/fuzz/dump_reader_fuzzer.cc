// SPDX-License-Identifier: Apache-2.0
//
// The readers of dumps and of their symbols on any text: it refuses, or makes a profile that every writer can write and
// that is read again as the same one.
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "tests/fuzz/check.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/profile/difference.h"

namespace {

using heaptap::formats::HeapV2;
using heaptap::formats::kMaxReadFrames;
using heaptap::formats::ReadHeapProfile;
using heaptap::profile::Context;
using heaptap::profile::Estimate;
using heaptap::profile::Profile;

void CheckEstimate(const Estimate& estimate) {
  Check(std::isfinite(estimate.bytes) && std::isfinite(estimate.objects));
  Check(estimate.bytes >= 0 && estimate.objects >= 0);
}

// The shares of threads add up.
void CheckThreads(absl::string_view text, const Profile& sums) {
  const absl::StatusOr<Profile> profile = ReadHeapProfile(text, "input", heaptap::formats::ReadThreads::kSeparate);
  Check(profile.ok() && profile->contexts.size() == sums.contexts.size());
  for (size_t i = 0; i < sums.contexts.size(); i++) {
    const Context& context = profile->contexts[i];
    Check(context.frames == sums.contexts[i].frames && !context.threads.empty());
    const double bytes = sums.contexts[i].Live().bytes;
    Check(std::fabs(context.Live().bytes - bytes) <= 1e-6 * bytes);
    for (size_t j = 1; j < context.threads.size(); j++) Check(context.threads[j - 1].tid < context.threads[j].tid);
    for (const heaptap::profile::ThreadShare& share : context.threads) {
      CheckEstimate(share.live);
      CheckEstimate(share.allocated);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const absl::StatusOr<heaptap::formats::SymbolizedText> parts = heaptap::formats::SplitSymbolized(text, "input");
  if (!parts.ok()) {
    Check(absl::IsInvalidArgument(parts.status()));
    for (const char character : parts.status().message()) Check(static_cast<unsigned char>(character) >= ' ');
    return 0;
  }
  absl::StatusOr<Profile> profile = ReadHeapProfile(parts->dump, "input");
  if (!profile.ok()) {
    Check(absl::IsInvalidArgument(profile.status()));
    Check(profile.status().message().size() < 1000);
    for (const char character : profile.status().message()) Check(static_cast<unsigned char>(character) >= ' ');
    return 0;
  }
  Check(profile->period > 0);
  absl::flat_hash_set<std::vector<uint64_t>> seen;
  for (const Context& context : profile->contexts) {
    Check(context.frames.size() <= kMaxReadFrames);
    Check(seen.insert(context.frames).second);
    CheckEstimate(context.Live());
    CheckEstimate(context.Allocated());
  }
  CheckThreads(parts->dump, *profile);
  Check(heaptap::profile::Difference(*profile, *profile).contexts.empty());
  const std::string written = HeapV2(*profile);
  const absl::StatusOr<Profile> again = ReadHeapProfile(written, "written");
  Check(again.ok());
  Check(again->contexts.size() <= profile->contexts.size());
  return 0;
}
