// SPDX-License-Identifier: Apache-2.0
//
// Processes that wait to be looked at: their mappings, their allocator, their control block.
//
// A look takes a fraction of a millisecond, or tens of milliseconds for a process with thousands of mappings, and a
// user can start hundreds of those. So each user has an account of time, and each call of Look has a bound. Who has
// used up the account waits; others do not. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_NEWCOMERS_H_
#define HEAPTAP_USERSPACE_RECORDING_NEWCOMERS_H_

#include <sys/types.h>

#include <map>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

class Newcomers {
 public:
  // `hands` must outlive this object.
  Newcomers(worker::Hands& hands, base::SubordinateIds ids);

  void Add(pid_t pid) { waiting_.try_emplace(pid); }
  void Forget(pid_t pid) { waiting_.erase(pid); }
  bool empty() const { return waiting_.empty(); }

  // Calls `look` for each process that waits and whose user has time left, in turns, until the time of a call is over.
  // `look` may call Add and Forget.
  void Look(absl::FunctionRef<void(pid_t)> look);
  // Calls `look` for each process that waits, without regard to accounts, until the deadline.
  void LookAtAll(absl::FunctionRef<void(pid_t)> look, base::Instant deadline);

 private:
  struct Waiting {
    bool owner_known = false;
    std::optional<uid_t> owner = {};
  };

  worker::Hands& hands_;
  base::Accounts accounts_;
  std::map<pid_t, Waiting> waiting_;
  pid_t last_ = 0;  // the next call continues after this one
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_NEWCOMERS_H_
