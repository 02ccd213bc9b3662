// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/growth_heap.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/formats/text_profile.h"

namespace heaptap::formats {
namespace {

void AppendCounts(const profile::Estimate& live, std::string& out) {
  const uint64_t objects = profile::ToWhole(live.objects);
  const uint64_t bytes = profile::ToWhole(live.bytes);
  absl::StrAppend(&out, objects, ": ", bytes, " [", objects, ": ", bytes, "] @");
}

}  // namespace

std::string GrowthHeap(const profile::Profile& profile) {
  const std::vector<Row> rows = Rows(profile);
  std::string out;
  out.reserve(EstimateSize(profile, rows));
  AppendWarnings(profile, out);
  out.append("heap profile: ");
  AppendCounts(profile.Live(), out);
  out.append(" growthz\n");
  for (const Row& row : rows) {
    if (row.live.IsZero()) continue;
    AppendCounts(row.live, out);
    AppendAddresses(*row.context, out);
    out.push_back('\n');
  }
  AppendMappedLibraries(profile, {}, profile.period, out);
  return out;
}

}  // namespace heaptap::formats
