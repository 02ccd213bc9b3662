// SPDX-License-Identifier: Apache-2.0
//
// Processes that wait to be looked at: their mappings, their allocator, their control block. A user can start thousands
// of them, so only a few looks of each user are under way (worker/looks.h); the other processes wait here, and those of
// other users do not wait for them. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_NEWCOMERS_H_
#define HEAPTAP_USERSPACE_RECORDING_NEWCOMERS_H_

#include <sys/types.h>

#include <cstddef>
#include <set>

#include "absl/functional/function_ref.h"

namespace heaptap::recording {

class Newcomers {
 public:
  // In each call of Look. A process costs a system call or two, and other work waits.
  static constexpr size_t kMaxAtOnce = 256;

  void Add(pid_t pid) { waiting_.insert(pid); }
  void Forget(pid_t pid) { waiting_.erase(pid); }
  bool empty() const { return waiting_.empty(); }

  // Calls `look` for the processes that wait and have room, in turns. `look` may call Add and Forget.
  void Look(absl::FunctionRef<bool(pid_t)> has_room, absl::FunctionRef<void(pid_t)> look);

 private:
  std::set<pid_t> waiting_;
  pid_t last_ = 0;  // the next call continues after this one
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_NEWCOMERS_H_
