// SPDX-License-Identifier: Apache-2.0
//
// AnswerProcesses to dump requests, each given by a child process with a time limit.
//
// A write into a file that the target opened, or into its memory, can block for ever: the target itself may be the FUSE
// file system or the userfaultfd handler behind them. The kernel ends such a child after kLimitSeconds.
// Not thread safe; SIGCHLD must not be ignored.
#ifndef HEAPTAP_USERSPACE_SERVICE_ANSWER_PROCESSES_H_
#define HEAPTAP_USERSPACE_SERVICE_ANSWER_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace heaptap::service {

class AnswerProcesses {
 public:
  // The time that the process waits for its answer.
  static constexpr unsigned kLimitSeconds = 10;
  // Stands for every process that is not recorded. Failures of these answers are not counted.
  static constexpr uint64_t kUnrecorded = 0;
  // Further requests stay unanswered, so that the collector never waits.
  static constexpr size_t kMaxRunning = 32;
  // A process has one request at a time, but children that have answered earlier ones may not have ended yet.
  static constexpr size_t kMaxRunningOfOne = 8;
  static constexpr size_t kMaxRunningOfUnrecorded = kMaxRunning / 2;

  explicit AnswerProcesses(unsigned limit_seconds = kLimitSeconds) : limit_seconds_(limit_seconds) {}
  ~AnswerProcesses();
  AnswerProcesses(const AnswerProcesses&) = delete;
  AnswerProcesses& operator=(const AnswerProcesses&) = delete;

  // Runs `answer` in a forked child, which prints its error to stderr. `process_id`: of the books, for WaitFor.
  // ResourceExhausted: too many children are running.
  absl::Status Start(uint64_t process_id, absl::FunctionRef<absl::Status()> answer);

  // Reaps the children that have ended. Returns how many of them failed.
  int Reap();

  bool IsRunning(uint64_t process_id) const;
  // Whether one more child may be started for this process.
  bool HasRoom(uint64_t process_id) const;
  // The failures of this process's answers no longer matter.
  void Drop(uint64_t process_id);
  // The failures of one process's answers since the last call.
  int TakeFailures(uint64_t process_id);

  // Waits for the answers of one process, at most their time limit. Returns the failures since the last call.
  int WaitFor(uint64_t process_id);

 private:
  unsigned limit_seconds_;
  bool ReapOne(pid_t child, uint64_t process_id, int options);

  std::map<pid_t, uint64_t> running_;  // child -> process id
  std::map<uint64_t, int> failures_;   // by process id
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_ANSWER_PROCESSES_H_
