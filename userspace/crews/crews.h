// SPDX-License-Identifier: Apache-2.0
//
// The crews of a collector. Each serves one user at a time, so that a reader that one user's file has taken over sees
// no file of another user. Crews start when they are needed and end after a time without a job. Thread-safe.
#ifndef HEAPTAP_USERSPACE_CREWS_CREWS_H_
#define HEAPTAP_USERSPACE_CREWS_CREWS_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/crews/crew.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

class Crews {
 public:
  // The most crews at work. Each has two processes.
  static constexpr size_t kMaxAtWork = 8;
  static constexpr size_t kMaxIdle = 2;
  static constexpr absl::Duration kMaxIdleTime = absl::Seconds(10);

  explicit Crews(Urgency urgency = Urgency::kBackground);
  Crews(const Crews&) = delete;
  Crews& operator=(const Crews&) = delete;

  // Does a job for the files of one user: with an idle crew of this user, or a new one. Each job of base::kUnknownUser
  // gets a crew of its own. Waits for a crew, and for room, within the job's limits.
  Answer Do(uid_t user, const Request& request, const Limits& limits);
  // Does a job of the hands alone, by hands that then end. If they die, other hands repeat it once.
  Answer DoByHands(const Request& request, const Limits& limits);

  // Gives up all jobs, also future ones: they return Cancelled.
  void Cancel();

  // Crews started so far.
  uint64_t started();

  // Ends crews that have been idle for too long. Call it from time to time.
  void EndIdle(base::Instant now);

 private:
  struct Idle {
    uid_t user;
    base::Instant since;
    std::unique_ptr<Crew> crew;
  };

  // Takes a place among the jobs at work. Unavailable: there was no place by the deadline. Cancelled.
  absl::Status Begin(base::Instant deadline);
  void EndJob();
  Answer DoBefore(base::Instant deadline, Crew& crew, const Request& request, Limits limits);

  const Urgency urgency_;
  const base::FileDescriptor cancelled_;  // an eventfd; readable: all jobs are given up
  base::Mutex mutex_;
  uint64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t at_work_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // longest idle first
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_CREWS_H_
