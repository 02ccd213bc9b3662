// SPDX-License-Identifier: Apache-2.0
//
// Answers to the dump requests of processes, which workers write (worker/answer_job.h), with bounds for each process
// and each user. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_DUMPS_ANSWERS_H_
#define HEAPTAP_USERSPACE_DUMPS_ANSWERS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/base/require.h"
#include "userspace/crews/errands.h"

namespace heaptap::recording {

class Answers {
 public:
  // The time that a process waits for its answer.
  static constexpr absl::Duration kLimit = absl::Seconds(10);
  // Stands for every process that is not recorded. Failures of these answers are not counted.
  static constexpr uint64_t kUnrecorded = 0;
  // The most answers under way. Further requests wait as long as their processes do.
  static constexpr size_t kMaxRunning = 32;
  // A process has one request at a time, but workers that have answered earlier ones may not have ended yet.
  static constexpr size_t kMaxRunningOfOne = 8;
  static constexpr size_t kMaxRunningOfUser = 8;  // except root
  static constexpr size_t kMaxRunningOfUnrecorded = kMaxRunning / 2;

  // `errands` must outlive this object.
  explicit Answers(worker::Errands& errands, absl::Duration limit = kLimit) : errands_(errands), limit_(limit) {}

  // Whether another answer may be begun for this process of this user. None: the user is unknown.
  bool HasRoom(uint64_t process_id, std::optional<uid_t> user) const;

  // An answer that is being made or written.
  struct Running {
    uint64_t process_id;
    std::optional<uid_t> user;
  };
  using Place = std::list<Running>::iterator;
  // REQUIRES: HasRoom.
  Place Take(uint64_t process_id, std::optional<uid_t> user) {
    HEAPTAP_REQUIRE(HasRoom(process_id, user));
    return running_.insert(running_.end(), {.process_id = process_id, .user = user});
  }
  // To be called if there will be no answer.
  void GiveBack(Place place) { running_.erase(place); }
  // `answer`: worker::AnswerQuestion, for the request of `pid`. `is_current` is called from another thread: whether the
  // process is still the same program. Prints errors; then calls `done`.
  void Start(Place place, pid_t pid, std::string answer, std::function<bool()> is_current,
             std::function<void(bool is_ok)> done);

  bool IsRunning(uint64_t process_id) const;
  // The failures of this process's answers no longer matter.
  void Drop(uint64_t process_id);
  // Waits for the answers of one process, or of all, for at most their time limit. Returns the failures since the last
  // call.
  int WaitFor(uint64_t process_id);
  void WaitForAll();

 private:
  worker::Errands& errands_;
  const absl::Duration limit_;
  std::list<Running> running_;
  std::map<uint64_t, int> failures_;  // by process id
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_ANSWERS_H_
