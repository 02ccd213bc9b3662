// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/accounts.h"

#include <algorithm>
#include <iterator>

#include "userspace/base/clock.h"
#include "userspace/base/user_ids.h"

namespace heaptap::base {
namespace {

// Beyond this number, full accounts are closed: a new account is full too.
constexpr size_t kMaxAccounts = 1024;

}  // namespace

Accounts::Account* Accounts::Find(std::optional<uid_t> user, Instant now) {
  if (user.has_value()) user = ids_.OwnerOf(*user);
  if (user == kRoot) return nullptr;
  const auto fill = [&](Account& account) {
    account.left = std::min(account.left + std::max(now - account.since, absl::ZeroDuration()) * share_, burst_);
    account.since = now;
  };
  if (accounts_.size() >= kMaxAccounts) {
    for (auto entry = accounts_.begin(); entry != accounts_.end();) {
      fill(entry->second);
      entry = entry->second.left == burst_ ? accounts_.erase(entry) : std::next(entry);
    }
  }
  Account& account = accounts_.try_emplace(user, Account{.left = burst_, .since = now}).first->second;
  fill(account);
  return &account;
}

absl::Duration Accounts::TimeUntil(std::optional<uid_t> user, Instant now) {
  const Account* account = Find(user, now);
  if (account == nullptr || account->left > absl::ZeroDuration()) return absl::ZeroDuration();
  // An account with exactly nothing left is empty, so the user waits a nanosecond more.
  return -account->left / share_ + absl::Nanoseconds(1);
}

void Accounts::Charge(std::optional<uid_t> user, absl::Duration used, Instant now) {
  if (Account* account = Find(user, now); account != nullptr) account->left -= used;
}

}  // namespace heaptap::base
