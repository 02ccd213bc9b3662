// SPDX-License-Identifier: Apache-2.0
//
// When to try a thing again that has failed for a reason that may pass, such as a worker that was late or was killed.
// The pauses between tries double. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_RETRIES_H_
#define HEAPTAP_USERSPACE_BASE_RETRIES_H_

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/time/time.h"
#include "userspace/base/clock.h"

namespace heaptap::base {

struct RetryPauses {
  absl::Duration first = absl::Seconds(10);
  absl::Duration most = absl::Minutes(10);
};

class Retry {
 public:
  // Returns the pause before the next try.
  absl::Duration Fail(const RetryPauses& pauses, Instant now) {
    failures_++;
    pause_ = failures_ == 1 ? pauses.first : std::min(2 * pause_, pauses.most);
    due_ = now + pause_;
    return pause_;
  }
  void Succeed() { *this = {}; }
  bool IsDue(Instant now) const { return now >= due_; }
  // Since the last success.
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
  absl::Duration pause_ = {};
  Instant due_ = Instant::InfinitePast();
};

// A Retry for each of many things, by key. Keeps a bounded number of them.
template <typename Key>
class Retries {
 public:
  explicit Retries(const RetryPauses& pauses) : pauses_(pauses) {}

  absl::Duration Fail(const Key& key, Instant now) {
    if (retries_.size() >= kMost) std::erase_if(retries_, [&](const auto& one) { return one.second.IsDue(now); });
    if (retries_.size() >= kMost) retries_.clear();
    return retries_[key].Fail(pauses_, now);
  }
  void Succeed(const Key& key) { retries_.erase(key); }
  // Also true for a thing that has never failed.
  bool IsDue(const Key& key, Instant now) const {
    const auto found = retries_.find(key);
    return found == retries_.end() || found->second.IsDue(now);
  }
  int failures(const Key& key) const {
    const auto found = retries_.find(key);
    return found == retries_.end() ? 0 : found->second.failures();
  }
  bool empty() const { return retries_.empty(); }

 private:
  // A user can make any number of things fail. A thing that is forgotten is tried again too early, which costs one try.
  static constexpr size_t kMost = 4096;

  const RetryPauses pauses_;
  std::map<Key, Retry> retries_;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_RETRIES_H_
