// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/newcomers.h"

#include <algorithm>

namespace heaptap::recording {

void Newcomers::Look(absl::FunctionRef<bool(pid_t)> has_room, absl::FunctionRef<void(pid_t)> look) {
  for (size_t left = std::min(waiting_.size(), kMaxAtOnce); left > 0 && !waiting_.empty(); left--) {
    auto next = waiting_.upper_bound(last_);
    if (next == waiting_.end()) next = waiting_.begin();
    last_ = *next;
    if (!has_room(last_)) continue;
    waiting_.erase(next);
    look(last_);
  }
}

}  // namespace heaptap::recording
