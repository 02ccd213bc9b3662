// SPDX-License-Identifier: Apache-2.0
//
// Processes that wait for a look or a reading, in a queue for each user. A user can start thousands of them, so only
// little work of each user is under way (crews/looks.h). The other processes wait here, and cost nothing meanwhile;
// those of other users do not wait for them. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TARGETS_USER_QUEUES_H_
#define HEAPTAP_USERSPACE_TARGETS_USER_QUEUES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "userspace/crews/looks.h"

namespace heaptap::recording {

class UserQueues {
 public:
  // The most processes that one call of Serve serves, of one user and in all. Each costs a system call or two, and
  // other work waits meanwhile.
  static constexpr size_t kMaxOfUser = 256;
  static constexpr size_t kMaxAtOnce = 1024;

  // Queues for `looks`, which must outlive this object.
  explicit UserQueues(const worker::Looks& looks);
  // `user_of`: who pays for work on this PID. `has_room`: whether work of this user may begin.
  UserQueues(std::function<uid_t(pid_t)> user_of, std::function<bool(uid_t)> has_room);

  // A process that waits already keeps its place. `process`: its PID or its process id.
  void Add(pid_t pid, uint64_t process);
  void Forget(uint64_t process);
  bool empty() const { return places_.empty(); }

  // Calls `serve` for processes of each user who has room, in the order of their places; a served process waits no
  // longer. Users take turns. `serve` may call Add and Forget.
  void Serve(absl::FunctionRef<void(uid_t user, uint64_t process)> serve);

 private:
  struct Place {
    pid_t pid;
    uid_t user;
    uint64_t number;
  };
  // False: the user has no room, or nothing waits.
  bool ServeFirst(uid_t user, absl::FunctionRef<void(uid_t, uint64_t)> serve);

  const std::function<uid_t(pid_t)> user_of_;
  const std::function<bool(uid_t)> has_room_;
  std::map<uid_t, std::map<uint64_t, uint64_t>> queues_;  // processes by the numbers of their places
  absl::flat_hash_map<uint64_t, Place> places_;           // by process
  uint64_t last_number_ = 0;
  uid_t last_user_ = 0;  // the next call continues after this one
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_USER_QUEUES_H_
