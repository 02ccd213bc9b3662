// SPDX-License-Identifier: Apache-2.0
//
// Where the history is, for those who read it. Thread-safe.
#ifndef HEAPTAP_USERSPACE_API_HISTORY_PLACE_H_
#define HEAPTAP_USERSPACE_API_HISTORY_PLACE_H_

#include <atomic>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/growth_rates.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"

namespace heaptap::api {

class HistoryPlace {
 public:
  static constexpr absl::Duration kFresh = absl::Seconds(5);

  explicit HistoryPlace(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // How fast the running processes grow. The rates are at most kFresh old: the table of processes asks every two
  // seconds, for everybody who looks at it. Empty: nothing is known.
  GrowthRates Growth() {
    base::MutexLock lock(&growth_mutex_);
    if (base::Now() >= growth_until_) {
      absl::StatusOr<GrowthRates> rates = ReadGrowthRates(path_, base::WallNow());
      if (absl::IsDataLoss(rates.status())) Suspect();
      growth_ = std::move(rates).value_or(GrowthRates());
      growth_until_ = base::Now() + kFresh;
    }
    return growth_;
  }

  // To be called by a reader that finds the database not sound. The writer then checks the database, and sets it aside.
  void Suspect() { is_suspect_ = true; }
  bool TakeSuspicion() { return is_suspect_.exchange(false); }

 private:
  const std::string path_;
  std::atomic<bool> is_suspect_ = false;
  base::Mutex growth_mutex_;
  GrowthRates growth_ ABSL_GUARDED_BY(growth_mutex_);
  base::Instant growth_until_ ABSL_GUARDED_BY(growth_mutex_) = base::Instant::InfinitePast();
};

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_HISTORY_PLACE_H_
