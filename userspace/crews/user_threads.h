// SPDX-License-Identifier: Apache-2.0
//
// Work for a thread that waits for nobody: other threads do it, and its end is passed on to the thread that owns this
// object.
//
// Users take turns. Each user has little work under way at a time, and an account of the time that the work takes. The
// work of a user who has used up the account waits; the work of others does not. Nobody pays for time without a
// processor, which others use. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CREWS_USER_THREADS_H_
#define HEAPTAP_USERSPACE_CREWS_USER_THREADS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/base/thread_checker.h"

namespace heaptap::worker {

class UserThreads {
 public:
  struct Bounds {
    // The most jobs under way.
    size_t of_user = 1;
    size_t of_root = 1;
    size_t of_all = 1;
    // The most jobs of one user that wait.
    size_t waiting = 1;
    // The account of each user but root (base::Accounts).
    double share = 0;
    absl::Duration burst = {};
    // Start does the work itself and calls `done`, for an owner that has nothing else to do. No other bound holds.
    bool is_in_caller = false;
  };
  // Runs in a thread of its own. Uses only what is thread-safe, or what belongs to it. Returns how long the processes
  // that it waited for were ready to run but had no processor.
  using Work = std::function<absl::Duration()>;
  // Runs in the owner's thread, within HandleDone.
  using Done = std::function<void()>;
  using Id = uint64_t;

  UserThreads(const Bounds& bounds, base::SubordinateIds ids);
  // Waits for the work that is under way. No further `done` is called.
  ~UserThreads();
  UserThreads(const UserThreads&) = delete;
  UserThreads& operator=(const UserThreads&) = delete;

  bool HasRoom(uid_t user) const;
  // The user whose account pays for this user. A subordinate id uses the account of its user.
  uid_t PayerFor(uid_t user) const { return accounts_.ids().OwnerOf(user); }
  // REQUIRES: HasRoom. `done` is called once, after the work, unless this object ends before.
  Id Start(uid_t user, Work work, Done done);
  // For somebody who finds no room: calls `done` like Start, without any work.
  void Refuse(uid_t user, Done done);
  // Another user waits for the same work. Work that has not begun begins in the first turn of one of its users, and
  // that user pays. Nothing happens if the other user has no room.
  void Join(uid_t user, Id id, uid_t other);
  // Makes the work the next of its user to begin, if it has not begun.
  void Hasten(uid_t user, Id id);

  // Becomes readable when work has been done.
  int fd() const { return is_done_.get(); }
  // Passes on what has been done, and begins work that was waiting. To be called regularly.
  void HandleDone();
  // Whether nothing waits, is under way, or is still to be passed on.
  bool IsIdle() const;
  // Handles what is done until `is_over` returns true. False: it did not by the deadline.
  bool WaitUntil(absl::FunctionRef<bool()> is_over, base::Instant deadline);

 private:
  struct Job {
    Id id;
    uid_t user;                 // who pays, once it has begun
    std::vector<uid_t> queues;  // of users, in which it waits
    Work work;
    Done done;
    absl::Duration used = {};  // what its user pays for
    std::thread thread = {};
  };
  struct User {
    std::deque<std::shared_ptr<Job>> waiting;
    size_t under_way = 0;
  };
  bool MayBegin(uid_t user, const User& state, base::Instant now);
  void Dispatch();
  void Begin(std::shared_ptr<Job> job);
  void NoteDone(Job& job);  // also from the threads

  const Bounds bounds_;
  base::Accounts accounts_;
  base::FileDescriptor is_done_;  // an eventfd
  std::map<uid_t, User> users_;   // subordinate ids count as their user
  uid_t last_served_ = 0;
  Id last_id_ = 0;
  std::list<std::shared_ptr<Job>> under_way_;
  base::Mutex mutex_;
  std::vector<Job*> done_ ABSL_GUARDED_BY(mutex_);
  base::ThreadChecker user_;
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_USER_THREADS_H_
