// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/heap_v2.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/formats/text_profile.h"
#include "userspace/profile/unbias.h"

namespace heaptap::formats {
namespace {

using profile::BiasedCount;
using profile::Estimate;
using profile::Profile;
using profile::ThreadShare;

class Writer {
 public:
  explicit Writer(const Profile& profile)
      : profile_(profile),
        rows_(Rows(profile)),
        period_(profile.raw ? profile.period : WrittenPeriod(profile, rows_)) {}

  std::string Write() && {
    out_.reserve(EstimateSize(profile_, rows_));
    AppendWarnings(profile_, out_);
    WriteHeader();
    for (const Row& row : rows_) WriteContext(row);
    AppendMappedLibraries(profile_, rows_, period_, out_);
    return std::move(out_);
  }

 private:
  void WriteHeader() {
    absl::StrAppend(&out_, "heap_v2/", period_, "\n");
    WriteCounts("*", profile_.Live(), profile_.Allocated());
    out_.push_back('\n');
    for (const ThreadShare& thread : profile_.Threads()) {
      WriteCounts(thread.tid, thread.live, thread.allocated);
      auto name = profile_.thread_names.find(thread.tid);
      if (name != profile_.thread_names.end() && !name->second.empty()) {
        out_.push_back(' ');
        AppendLineOf(name->second, out_);
      }
      out_.push_back('\n');
    }
  }

  void WriteContext(const Row& row) {
    out_.push_back('@');
    AppendAddresses(*row.context, out_);
    out_.push_back('\n');
    WriteCounts("*", row.live, row.allocated);
    out_.push_back('\n');
    for (const ThreadShare& share : row.context->threads) {
      if (share.live.IsZero() && share.allocated.IsZero()) continue;
      WriteCounts(share.tid, share.live, share.allocated);
      out_.push_back('\n');
    }
  }

  // Each line is corrected separately, because readers correct it separately.
  void WriteCounts(const absl::AlphaNum& thread, const Estimate& live, const Estimate& allocated) {
    const BiasedCount now = Written(live);
    const BiasedCount ever = Written(allocated);
    absl::StrAppend(&out_, "  t", thread, ": ", now.objects);
    absl::StrAppend(&out_, ": ", now.bytes, " [", ever.objects);
    absl::StrAppend(&out_, ": ", ever.bytes, "]");
  }

  BiasedCount Written(const Estimate& estimate) const {
    if (profile_.raw) return {estimate.samples, estimate.sampled_bytes};
    return profile::Bias(estimate.objects, estimate.bytes, period_);
  }

  const Profile& profile_;
  const std::vector<Row> rows_;
  const uint64_t period_;  // in the first line
  std::string out_;
};

}  // namespace

std::string HeapV2(const profile::Profile& profile) { return Writer(profile).Write(); }

}  // namespace heaptap::formats
