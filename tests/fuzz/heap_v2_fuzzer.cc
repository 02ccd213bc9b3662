// SPDX-License-Identifier: Apache-2.0
//
// HeapV2 on any profile: every line is one that jeprof understands and divides without error.
#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/fuzz/check.h"
#include "userspace/formats/heap_v2.h"

namespace {

using heaptap::profile::Context;
using heaptap::profile::Estimate;
using heaptap::profile::Profile;
using heaptap::profile::ThreadShare;

Estimate AnyEstimate(FuzzedDataProvider& data) {
  return {data.ConsumeIntegral<uint64_t>(), data.ConsumeIntegral<uint64_t>(), data.ConsumeFloatingPoint<double>(),
          data.ConsumeFloatingPoint<double>()};
}

Profile AnyProfile(FuzzedDataProvider& data) {
  Profile profile;
  profile.period = uint64_t{1} << data.ConsumeIntegralInRange(0, 63);
  while (data.ConsumeBool()) profile.warnings.push_back(data.ConsumeRandomLengthString());
  while (data.ConsumeBool()) profile.thread_names[data.ConsumeIntegral<uint8_t>()] = data.ConsumeRandomLengthString();
  while (data.ConsumeBool()) {
    Context context;
    while (data.ConsumeBool()) context.frames.push_back(data.ConsumeIntegral<uint64_t>());
    while (data.ConsumeBool()) {
      context.threads.push_back({data.ConsumeIntegral<uint8_t>(), AnyEstimate(data), AnyEstimate(data)});
    }
    profile.contexts.push_back(context);
  }
  return profile;
}

// A pair "objects: bytes" as jeprof's AdjustSamples takes it.
void CheckCount(uint64_t objects, uint64_t bytes, uint64_t period) {
  Check((objects == 0) == (bytes == 0));
  if (objects == 0) return;
  double ratio = static_cast<double>(bytes) / static_cast<double>(objects) / static_cast<double>(period);
  Check(1 - std::exp(-ratio) > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  Profile profile = AnyProfile(data);
  std::string file = heaptap::formats::HeapV2(profile);

  std::vector<std::string> lines = absl::StrSplit(file, '\n');
  size_t warnings = profile.warnings.size();
  for (size_t i = 0; i < warnings; ++i) Check(absl::StartsWith(lines.at(i), "%warn "));
  unsigned long long period = 0;
  Check(sscanf(lines.at(warnings).c_str(), "heap_v2/%llu", &period) == 1 && period >= 1 && period <= profile.period);
  size_t stacks = 0;
  size_t i = warnings + 1;
  for (; !lines.at(i).empty(); ++i) {
    const std::string& line = lines[i];
    if (line[0] == '@') {
      ++stacks;
      Check(absl::StartsWith(line, "@ 0x"));
      continue;
    }
    unsigned long long now_objects, now_bytes, ever_objects, ever_bytes;
    size_t colon = line.find(": ");
    Check(absl::StartsWith(line, "  t") && colon != std::string::npos);
    Check(sscanf(line.c_str() + colon, ": %llu: %llu [%llu: %llu]", &now_objects, &now_bytes, &ever_objects,
                 &ever_bytes) == 4);
    CheckCount(now_objects, now_bytes, period);
    CheckCount(ever_objects, ever_bytes, period);
  }
  Check(stacks <= profile.contexts.size());
  Check(lines.at(i + 1) == "MAPPED_LIBRARIES:");
  for (i += 2; i + 1 < lines.size(); i++) Check(absl::StartsWith(lines[i], "# "));
  return 0;
}
