// SPDX-License-Identifier: Apache-2.0
//
// How much processor time the answers to each client's user may take.
#ifndef HEAPTAP_USERSPACE_HTTP_CLIENT_TIME_H_
#define HEAPTAP_USERSPACE_HTTP_CLIENT_TIME_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"

namespace heaptap::http {

// The accounts of the users. Thread-safe.
class ClientTime {
 public:
  // Each user's part of one processor, and what a user may use at once after a quiet time. The profile of a process
  // with 65,536 call paths takes some tenths of a second, two weeks of a history some hundredths.
  static constexpr double kShare = 0.1;
  static constexpr absl::Duration kBurst = absl::Seconds(2);

  ClientTime() : accounts_(base::SubordinateIds::OfSystem(), kShare, kBurst) {}

  // `user`: none if it is unknown. ResourceExhausted: has no time left; the message and SecondsToWait say when.
  absl::Status Check(std::optional<uid_t> user);
  void Charge(std::optional<uid_t> user, absl::Duration used);

 private:
  base::Mutex mutex_;
  base::Accounts accounts_ ABSL_GUARDED_BY(mutex_);
};

// The seconds after which an error of ClientTime::Check is over; none: the error is another one.
std::optional<int64_t> SecondsToWait(const absl::Status& status);

// Who asks, and pays with the processor time of the thread that answers. Not thread-safe: of that thread.
class Asker {
 public:
  Asker(ClientTime& time, std::optional<uid_t> user) : time_(time), user_(user) {}
  ~Asker() { ChargeAtMost(absl::InfiniteDuration()); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  std::optional<uid_t> user() const { return user_; }
  // Charges what the answer has taken so far. Errors: those of ClientTime::Check.
  absl::Status Pay() {
    ChargeAtMost(absl::InfiniteDuration());
    return time_.Check(user_);
  }
  // Charges what the answer has taken since the last charge, and nothing beyond `most`: who asks does not pay for what
  // others cause.
  void ChargeAtMost(absl::Duration most);
  // Charges what another thread has spent for the answer.
  void Charge(absl::Duration by_other) { time_.Charge(user_, by_other); }

 private:
  ClientTime& time_;
  const std::optional<uid_t> user_;
  absl::Duration charged_ = base::ThreadProcessorTime();
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_CLIENT_TIME_H_
