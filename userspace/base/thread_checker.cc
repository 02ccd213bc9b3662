// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/thread_checker.h"

#include "userspace/base/require.h"

namespace heaptap::base {

bool ThreadChecker::Enter() const {
  const std::thread::id caller = std::this_thread::get_id();
  std::thread::id user = {};
  const bool is_first = user_.compare_exchange_strong(user, caller, std::memory_order_relaxed);
  HEAPTAP_REQUIRE(is_first || user == caller);
  return is_first;
}

void ThreadChecker::Leave() const { user_.store({}, std::memory_order_relaxed); }

}  // namespace heaptap::base
