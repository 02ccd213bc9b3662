// SPDX-License-Identifier: Apache-2.0
//
// Jobs of crews without a waiting caller: their answers come later, on the thread that owns this object.
//
// Users take turns. Each user but root has few jobs at work at a time, and an account of the time of workers: the jobs
// of a user who has used it up wait, those of others do not. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_ERRANDS_H_
#define HEAPTAP_USERSPACE_WORKER_ERRANDS_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/worker/crews.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

class Errands {
 public:
  // At work, of one user.
  static constexpr size_t kMaxOfUser = 2;
  static constexpr size_t kMaxOfRoot = 4;
  // Of the time that passes, and after a quiet time at once. The unwind tables of a large program take a second.
  static constexpr double kShare = 0.25;
  static constexpr absl::Duration kBurst = absl::Seconds(20);
  // Jobs of one user that wait. Further ones fail (Unavailable).
  static constexpr size_t kMaxWaiting = 4096;

  using Done = std::function<void(Answer)>;
  using JobId = uint64_t;

  explicit Errands(Urgency urgency, base::SubordinateIds ids = {}, absl::Duration burst = kBurst);
  // Gives up all jobs.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // Begins a job for the files of `user` (Crews::Do), or by hands of its own (Job::kAnswer). `done` is called once, in
  // HandleDone, unless this object ends before.
  JobId Start(uid_t user, Request request, const Limits& limits, Done done);
  // To be called when somebody waits for the job. The job is the next of its user to begin, if it has not begun.
  void Hasten(uid_t user, JobId job);

  // Becomes readable when there are answers.
  int fd() const { return is_done_.get(); }
  // Passes on the answers that have come, and begins jobs that were waiting. To be called regularly.
  void HandleDone();
  // No job waits, is at work, or has an answer that was not passed on.
  bool IsIdle() const;
  // Handles answers until `is_over`; false: not by the deadline.
  bool WaitUntil(absl::FunctionRef<bool()> is_over, base::Instant deadline);

  // Ends idle crews. Call it from time to time.
  void EndIdle(base::Instant now) { crews_.EndIdle(now); }

 private:
  struct Job {
    JobId id;
    uid_t user;
    Request request;
    Limits limits;
    Done done;
    base::Instant begin = {};
    Answer answer = {};
    std::thread thread = {};
  };
  struct User {
    std::deque<std::unique_ptr<Job>> waiting;
    size_t at_work = 0;
  };
  bool MayBegin(uid_t user, const User& state, base::Instant now);
  void Dispatch();
  void Begin(std::unique_ptr<Job> job);
  void NoteDone(Job& job);  // also from threads of jobs

  Crews crews_;
  base::Accounts accounts_;
  base::FileDescriptor is_done_;  // an eventfd
  std::map<uid_t, User> users_;
  uid_t last_served_ = 0;
  JobId last_id_ = 0;
  std::list<std::unique_ptr<Job>> at_work_;
  absl::Mutex mutex_;
  std::vector<Job*> done_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_ERRANDS_H_
