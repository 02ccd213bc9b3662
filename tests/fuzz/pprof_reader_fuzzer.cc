// SPDX-License-Identifier: Apache-2.0
//
// The reader of pprof's profiles on any bytes, compressed or not: it refuses, or makes a profile that the writer can
// write and that is read again with the same sums.
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "tests/fuzz/check.h"
#include "userspace/formats/gzip.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/formats/pprof.h"
#include "userspace/formats/pprof_reader.h"
#include "userspace/profile/difference.h"

namespace {

using heaptap::formats::PprofContent;
using heaptap::profile::Context;
using heaptap::profile::Estimate;
using heaptap::profile::Profile;

constexpr size_t kMostUnpacked = 1 << 20;

void CheckMessage(const absl::Status& status) {
  Check(absl::IsInvalidArgument(status));
  Check(status.message().size() < 1000);
  for (const char character : status.message()) Check(static_cast<unsigned char>(character) >= ' ');
}

void CheckProfile(const Profile& profile) {
  Check(profile.period > 0);
  absl::flat_hash_set<std::vector<uint64_t>> seen;
  for (const Context& context : profile.contexts) {
    Check(context.frames.size() <= heaptap::formats::kMaxReadFrames);
    Check(seen.insert(context.frames).second);
    Check(!context.threads.empty());
    for (size_t i = 1; i < context.threads.size(); i++) Check(context.threads[i - 1].tid < context.threads[i].tid);
    Check(std::isfinite(context.Live().bytes) && std::isfinite(context.Live().objects));
    const Estimate allocated = context.Allocated();
    Check(std::isfinite(allocated.bytes) && allocated.bytes >= 0 && allocated.objects >= 0);
  }
  for (size_t i = 0; i < profile.mappings.size(); i++) {
    Check(profile.mappings[i].start < profile.mappings[i].end);
    Check(i == 0 || profile.mappings[i - 1].end <= profile.mappings[i].start);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace heaptap::formats;

  std::string input(reinterpret_cast<const char*>(bytes), size);
  if (IsGzip(input)) {
    absl::StatusOr<std::string> unpacked = Gunzip(input, kMostUnpacked);
    if (!unpacked.ok()) {
      CheckMessage(unpacked.status());
      return 0;
    }
    Check(unpacked->size() <= kMostUnpacked);
    input = *std::move(unpacked);
  }
  const absl::StatusOr<PprofContent> content = ReadPprof(input, "input");
  if (!content.ok()) {
    CheckMessage(content.status());
    return 0;
  }
  CheckProfile(content->profile);
  Check(heaptap::profile::Difference(content->profile, content->profile).contexts.empty());

  const heaptap::profile::FindSourceFrames find = [&content](uint64_t address) {
    const auto found = content->symbols.find(address);
    return found == content->symbols.end() ? std::vector<heaptap::profile::SourceFrame>() : found->second;
  };
  const absl::StatusOr<std::string> written = Gunzip(Pprof(content->profile, {.find_source_frames = find}), 1 << 30);
  Check(written.ok() && IsPprof(*written));
  const absl::StatusOr<PprofContent> again = ReadPprof(*written, "written");
  Check(again.ok());
  CheckProfile(again->profile);
  Check(again->profile.contexts.size() <= content->profile.contexts.size());
  const double live = content->profile.Live().bytes;
  Check(std::fabs(again->profile.Live().bytes - live) <= 1e-6 * std::fabs(live) + 1);
  return 0;
}
