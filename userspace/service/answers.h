// SPDX-License-Identifier: Apache-2.0
//
// Work that a target can make wait for ever, done in processes of their own with a bound.
//
// Writing into a file that the target opened, or into its memory, waits for whoever serves them: a FUSE file system or
// a userfaultfd handler may be the target itself. So each answer to a dump request is given by a forked child, which
// the kernel ends after kLimitSeconds. Not thread safe; SIGCHLD must not be ignored.
#ifndef HEAPTAP_USERSPACE_SERVICE_ANSWERS_H_
#define HEAPTAP_USERSPACE_SERVICE_ANSWERS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace heaptap::service {

class Answers {
 public:
  // As long as the process waits.
  static constexpr unsigned kLimitSeconds = 10;
  // Instead of a process id: a process that is not recorded. How its answer ends is nobody's concern.
  static constexpr uint64_t kStranger = 0;
  // At most so many at a time: who asks more often waits in vain, not we.
  static constexpr size_t kMaxRunning = 32;
  // Of one process, which has one request at a time: those before it may not have come to end since they answered.
  static constexpr size_t kMaxRunningOfOne = 8;
  static constexpr size_t kMaxRunningOfStrangers = kMaxRunning / 2;

  explicit Answers(unsigned limit_seconds = kLimitSeconds) : limit_seconds_(limit_seconds) {}
  ~Answers();
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  // Runs `answer` in a child, with what this process knows now; an error that it returns is said on stderr.
  // `process_id`: of the books, for WaitFor. ResourceExhausted: too many are running.
  absl::Status Start(uint64_t process_id, absl::FunctionRef<absl::Status()> answer);

  // Looks after those that have ended. Returns how many of them failed.
  int Reap();

  bool IsRunning(uint64_t process_id) const;
  // Whether one more could be started: for this process, and at all.
  bool HasRoom(uint64_t process_id) const;
  // Nobody will ask about this process's any more.
  void Drop(uint64_t process_id);
  // How many of one process's have failed since it was asked last.
  int TakeFailures(uint64_t process_id);

  // Waits for those of one process; they take no longer than their limit. Returns how many have failed since it was
  // asked last.
  int WaitFor(uint64_t process_id);

 private:
  unsigned limit_seconds_;
  bool ReapOne(pid_t child, uint64_t process_id, int options);

  std::map<pid_t, uint64_t> running_;  // child -> process id
  std::map<uint64_t, int> failures_;   // by process id
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_ANSWERS_H_
