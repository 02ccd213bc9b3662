// SPDX-License-Identifier: Apache-2.0
//
// How much processor time the answers to each client's user may take.
#ifndef HEAPTAP_USERSPACE_HTTP_CLIENT_TIME_H_
#define HEAPTAP_USERSPACE_HTTP_CLIENT_TIME_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/http/answer_room.h"

namespace heaptap::http {

// The accounts of the users. Thread-safe.
class ClientTime {
 public:
  // Each user's part of one processor, and what a user may use at once after a quiet time. The profile of a process
  // with 65,536 call paths takes some tenths of a second, two weeks of a history some hundredths.
  static constexpr double kShare = 0.1;
  static constexpr absl::Duration kBurst = absl::Seconds(2);

  ClientTime() : accounts_(base::SubordinateIds::OfSystem(), kShare, kBurst) {}

  // `user`: none if it is unknown. ResourceExhausted: the user has no time left; the message and SecondsToWait say when
  // there is time again.
  absl::Status Check(std::optional<uid_t> user);
  void Charge(std::optional<uid_t> user, absl::Duration used);

 private:
  base::Mutex mutex_;
  base::Accounts accounts_ ABSL_GUARDED_BY(mutex_);
};

// For an error of ClientTime::Check, the seconds after which the user has time again; none: it is another error.
std::optional<int64_t> SecondsToWait(const absl::Status& status);

// The client that asks, and that pays for the answer with processor time of the thread that answers and with room. Not
// thread-safe: only that thread uses it.
class Asker {
 public:
  // `room`: null if answers may take any amount of memory.
  Asker(ClientTime& time, std::optional<uid_t> user, AnswerRoom* room = nullptr)
      : time_(time), user_(user), room_(room) {}
  ~Asker() { ChargeAtMost(absl::InfiniteDuration()); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  std::optional<uid_t> user() const { return user_; }
  // Charges what the answer has taken so far. Errors: those of ClientTime::Check.
  absl::Status Pay() {
    ChargeAtMost(absl::InfiniteDuration());
    return time_.Check(user_);
  }
  // Charges what the answer has taken since the last charge, but not more than `most`: the asker does not pay for what
  // others cause.
  void ChargeAtMost(absl::Duration most);
  // Charges what another thread has spent on the answer.
  void Charge(absl::Duration by_other) { time_.Charge(user_, by_other); }

  // To be called before a profile is read. Waits for room, unless this answer has it already. Errors: those of
  // AnswerRoom::Wait.
  absl::Status WaitForRoom(base::Instant deadline);
  // The answer may become much larger than its profiles, so it needs all room until it is made.
  void NeedAllRoom() { needs_all_room_ = true; }
  // Adds a profile to the answer. The answer takes as much room as its profiles together.
  void AddProfile(uint64_t bytes);
  // To be called when the answer is made. The room is given back when the result is destroyed. Null: the answer had no
  // room.
  std::shared_ptr<void> EndAnswer(uint64_t bytes);

 private:
  ClientTime& time_;
  const std::optional<uid_t> user_;
  AnswerRoom* const room_;
  std::shared_ptr<AnswerRoom::Part> part_;
  uint64_t profile_bytes_ = 0;
  bool needs_all_room_ = false;
  absl::Duration charged_ = base::ThreadProcessorTime();
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_CLIENT_TIME_H_
