// SPDX-License-Identifier: Apache-2.0
//
// Jobs of crews without a waiting caller: their answers come later, on the thread that owns this object. Users take
// turns (user_threads.h). Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CREWS_ERRANDS_H_
#define HEAPTAP_USERSPACE_CREWS_ERRANDS_H_

#include <sys/types.h>

#include <functional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/crews/crews.h"
#include "userspace/crews/user_threads.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

class Errands {
 public:
  // The most jobs at work, of one user and of root.
  static constexpr size_t kMaxOfUser = 2;
  static constexpr size_t kMaxOfRoot = 4;
  // A user's share of the time that passes, and the time that may be used at once after a quiet time. The unwind tables
  // of a large program take a second.
  static constexpr double kShare = 0.25;
  static constexpr absl::Duration kBurst = absl::Seconds(20);
  // The most jobs of one user that wait. Further ones fail (Unavailable).
  static constexpr size_t kMaxWaiting = 4096;

  using Done = std::function<void(Answer)>;
  using JobId = UserThreads::Id;
  static constexpr JobId kNoJob = 0;  // also returned for a job that found no room

  explicit Errands(Urgency urgency, base::SubordinateIds ids = {}, absl::Duration burst = kBurst);
  // Gives up all jobs.
  ~Errands() { crews_.Cancel(); }

  // Begins a job for the files of `user` (Crews::Do), or by hands of its own (Job::kAnswer). `payer`: the user whose
  // account pays for the time. `done` is called once, in HandleDone, unless this object ends before.
  JobId Start(uid_t payer, uid_t user, Request request, const Limits& limits, Done done);
  JobId Start(uid_t user, Request request, const Limits& limits, Done done) {
    return Start(user, user, std::move(request), limits, std::move(done));
  }
  // To be called when another user waits for the job too (UserThreads::Join).
  void Join(uid_t payer, JobId job, uid_t other) { threads_.Join(payer, job, other); }
  // To be called when somebody waits for the job.
  void Hasten(uid_t payer, JobId job) { threads_.Hasten(payer, job); }

  // Like those of UserThreads.
  int fd() const { return threads_.fd(); }
  void HandleDone() { threads_.HandleDone(); }
  bool IsIdle() const { return threads_.IsIdle(); }
  bool WaitUntil(absl::FunctionRef<bool()> is_over, base::Instant deadline) {
    return threads_.WaitUntil(is_over, deadline);
  }

  // Ends idle crews. Call it from time to time.
  void EndIdle(base::Instant now) { crews_.EndIdle(now); }

 private:
  Crews crews_;
  UserThreads threads_;  // ends first: its threads use the crews
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_ERRANDS_H_
