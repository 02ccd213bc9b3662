// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/places.h"

#include <algorithm>

#include "userspace/base/require.h"
#include "userspace/base/user_ids.h"

namespace heaptap::http {
namespace {

// One in this many of all places is kept for users that have none. For the Unix socket these are eight places, so that
// eight users can get their first answers while others hold all that they may have.
constexpr size_t kPartForNewUsers = 4;

}  // namespace

bool Places::Take(std::optional<uid_t> user) {
  const auto own = by_user_.find(user);
  const size_t has = own == by_user_.end() ? 0 : own->second;
  size_t kept = 0;
  if (user.has_value() && user != base::kRoot) {
    const auto roots = by_user_.find(base::kRoot);
    const size_t root_has = roots == by_user_.end() ? 0 : roots->second;
    kept = shares_.kept_for_root - std::min(shares_.kept_for_root, root_has);
    if (has != 0) kept += shares_.all / kPartForNewUsers;
  }
  if (taken_ + kept >= shares_.all || (user.has_value() && has >= shares_.of_user)) return false;
  by_user_[user]++;
  taken_++;
  return true;
}

void Places::Leave(std::optional<uid_t> user) {
  const auto own = by_user_.find(user);
  HEAPTAP_REQUIRE(own != by_user_.end() && taken_ > 0);
  taken_--;
  if (--own->second == 0) by_user_.erase(own);
}

}  // namespace heaptap::http
