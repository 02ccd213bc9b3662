// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/gperftools_heap.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/formats/text_profile.h"
#include "userspace/profile/unbias.h"

namespace heaptap::formats {
namespace {

void AppendCounts(const profile::Estimate& live, const profile::Estimate& allocated, uint64_t period,
                  std::string& out) {
  const profile::BiasedCount now = profile::Bias(live.objects, live.bytes, period);
  const profile::BiasedCount ever = profile::Bias(allocated.objects, allocated.bytes, period);
  absl::StrAppend(&out, now.objects, ": ", now.bytes, " [");
  absl::StrAppend(&out, ever.objects, ": ", ever.bytes, "] @");
}

}  // namespace

std::string GperftoolsHeap(const profile::Profile& profile) {
  const std::vector<Row> rows = Rows(profile);
  const uint64_t period = WrittenPeriod(profile, rows);
  std::string out;
  out.reserve(EstimateSize(profile, rows));
  AppendWarnings(profile, out);
  out.append("heap profile: ");
  AppendCounts(profile.Live(), profile.Allocated(), period, out);
  absl::StrAppend(&out, " heap_v2/", period, "\n");
  for (const Row& row : rows) {
    AppendCounts(row.live, row.allocated, period, out);
    AppendAddresses(*row.context, out);
    out.push_back('\n');
  }
  AppendMappedLibraries(profile, rows, period, out);
  return out;
}

}  // namespace heaptap::formats
