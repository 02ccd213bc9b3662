// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/page_shares.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/report/json_column.h"
#include "userspace/report/measure_columns.h"
#include "userspace/report/root_names.h"

namespace heaptap::report {
namespace {

// The numbers of the names of threads.
class ThreadNumbers {
 public:
  ThreadNumbers(const profile::Profile& profile, absl::FunctionRef<int64_t(std::string)> number_of)
      : profile_(profile), number_of_(number_of) {}

  int64_t Of(uint32_t tid) {
    const auto [entry, is_new] = numbers_.try_emplace(tid, 0);
    if (is_new) entry->second = number_of_(NameOfThread(profile_, tid));
    return entry->second;
  }

 private:
  const profile::Profile& profile_;
  absl::FunctionRef<int64_t(std::string)> number_of_;
  absl::flat_hash_map<uint32_t, int64_t> numbers_;
};

std::string ThreadColumns(const profile::Profile& profile, ThreadNumbers& threads) {
  JsonColumn path("path");
  JsonColumn thread("thread");
  MeasureColumns live("live");
  MeasureColumns allocated("allocated");
  for (size_t number = 0; number < profile.contexts.size(); number++) {
    for (const profile::ThreadShare& share : profile.contexts[number].threads) {
      path.Add(static_cast<int64_t>(number));
      thread.Add(threads.Of(share.tid));
      live.Add(ToMeasure(share.live));
      allocated.Add(ToMeasure(share.allocated));
    }
  }
  return absl::StrCat(",\"threads\":{", path.Text(), ",", thread.Text(), ",", live.Text(), ",", allocated.Text(), "}");
}

std::string BlockColumns(const profile::Profile& profile, ThreadNumbers& threads) {
  JsonColumn path("path");
  JsonColumn thread("thread");
  JsonColumn size("size");
  JsonColumn age("age");
  MeasureColumns live("live");
  for (size_t number = 0; number < profile.contexts.size(); number++) {
    for (const profile::BlockShare& share : profile.contexts[number].blocks) {
      path.Add(static_cast<int64_t>(number));
      thread.Add(threads.Of(share.tid));
      size.Add(static_cast<int64_t>(share.size));
      age.Add(share.age == profile::kUnknownAge ? -1 : static_cast<int64_t>(share.age));
      live.Add(ToMeasure(share.live));
    }
  }
  return absl::StrCat(",\"blocks\":{", path.Text(), ",", thread.Text(), ",", size.Text(), ",", age.Text(), ",",
                      live.Text(), "}");
}

bool TellsThreadsApart(const profile::Profile& profile) {
  return std::ranges::any_of(profile.contexts, [](const profile::Context& context) {
    return std::ranges::any_of(context.threads, [](const profile::ThreadShare& share) { return share.tid != 0; });
  });
}

}  // namespace

std::string PageShares(const profile::Profile& profile, absl::FunctionRef<int64_t(std::string)> number_of) {
  ThreadNumbers threads(profile, number_of);
  std::string text;
  if (TellsThreadsApart(profile)) text = ThreadColumns(profile, threads);
  if (profile.HasBlocks()) absl::StrAppend(&text, BlockColumns(profile, threads));
  return text;
}

}  // namespace heaptap::report
