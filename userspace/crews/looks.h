// SPDX-License-Identifier: Apache-2.0
//
// Looks at processes and their mapped files for a thread that waits for nobody: hands look, and what they have seen
// comes later, on the thread that owns this object. Users take turns (user_threads.h): the user of a process pays for
// the time of the look, including the time in which it waits for that process. Not thread-safe.
//
// PIDs may be reused: the caller checks afterwards that the PID still means the same process.
#ifndef HEAPTAP_USERSPACE_CREWS_LOOKS_H_
#define HEAPTAP_USERSPACE_CREWS_LOOKS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/user_threads.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/facts.h"
#include "userspace/worker/file_jobs.h"

namespace heaptap::worker {

// What a look at a process has found.
struct LookedAt {
  base::Instant begin = {};
  process::Facts facts = {};
  std::vector<elf::Mapping> mappings = {};
  struct File {
    size_t mapping;  // the first one of this file
    MappedFile file;
  };
  std::vector<File> files = {};  // that could be opened, in the order of their mappings
};

class Looks {
 public:
  // A user's share of the time that passes, and the time that may be used at once after a quiet time: enough for
  // hundreds of ordinary processes. A look takes a millisecond, or a tenth of a second for a process with thousands of
  // mappings.
  static constexpr double kShare = 0.1;
  static constexpr absl::Duration kBurst = absl::Milliseconds(200);
  // The most looks of one user that wait.
  static constexpr size_t kMaxWaiting = 64;
  // The most files of one process that are looked at. Large programs map hundreds.
  static constexpr size_t kMaxFiles = 4096;

  enum class Place {
    kOwnThreads,
    kCaller,  // each call does its work and calls `done` itself, for an owner that has nothing else to do
  };
  // `identify`: the descriptor of this program, which must stay open. `bounds`: of the hands. `waiting`: the most looks
  // of one user that wait; further ones are for later (HasRoom).
  Looks(int identify, base::SubordinateIds ids, const Hands::Bounds& bounds, size_t waiting = kMaxWaiting,
        Place place = Place::kOwnThreads);

  // Whether another look may begin for the user of this process. The user is known without a look.
  bool HasRoom(pid_t pid) const { return HasRoomFor(PayerOf(pid)); }
  // Like HasRoom, for a user that PayerOf has returned.
  bool HasRoomFor(uid_t payer) const { return threads_.HasRoom(payer); }

  // The calls below REQUIRE HasRoom. Errors are those of Hands. `done` is called once, unless this object ends before.
  //
  // Looks at all files of a process.
  using InspectDone = std::function<void(absl::StatusOr<LookedAt>)>;
  void Inspect(pid_t pid, InspectDone done);
  // Looks at one file that a process has mapped (Hands::Look).
  using FileDone = std::function<void(absl::StatusOr<MappedFile>)>;
  void Look(pid_t pid, const elf::Mapping& mapping, FileDone done);
  // Begins any work of hands, in another thread. `identify`: the descriptor for Hands::Look.
  using Work = std::function<void(Hands&, int identify)>;
  void Start(pid_t pid, Work look, std::function<void()> done);

  // The user who pays for a look at the process: the one who may look at it, or for a subordinate id, its user.
  // base::kUnknownUser: the process has ended.
  uid_t PayerOf(pid_t pid) const;

  // Like those of UserThreads.
  int fd() const { return threads_.fd(); }
  void HandleDone() { threads_.HandleDone(); }
  bool IsIdle() const { return threads_.IsIdle(); }
  bool WaitUntil(absl::FunctionRef<bool()> is_over, base::Instant deadline) {
    return threads_.WaitUntil(is_over, deadline);
  }
  // Ends hands that have been idle for too long. Call it from time to time.
  void EndIdle(base::Instant now);

 private:
  std::unique_ptr<Hands> TakeHands();
  void GiveBack(std::unique_ptr<Hands> hands);

  const int identify_;
  const Hands::Bounds bounds_;
  struct Idle {
    base::Instant since;
    std::unique_ptr<Hands> hands;
  };
  base::Mutex mutex_;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // the last one is taken first
  UserThreads threads_;                             // ends first: its threads use the hands
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_LOOKS_H_
