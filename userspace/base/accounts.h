// SPDX-License-Identifier: Apache-2.0
//
// Accounts of time, one for each user: how much of something that all users share a user may use. A user who wants more
// waits; other users do not.
//
// An account holds `burst` at first and gets `share` of the time that passes. Work that begins before the account is
// empty may overdraw it. Root has no account. Subordinate ids share the account of their user. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_ACCOUNTS_H_
#define HEAPTAP_USERSPACE_BASE_ACCOUNTS_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/subordinate_ids.h"

namespace heaptap::base {

class Accounts {
 public:
  Accounts(SubordinateIds ids, double share, absl::Duration burst)
      : ids_(std::move(ids)), share_(share), burst_(burst) {}

  // `user`: none if it is unknown. All unknown users share an account.
  bool HasTime(std::optional<uid_t> user, Instant now) { return TimeUntil(user, now) == absl::ZeroDuration(); }
  // How long the user has to wait for time if nothing more is charged; zero: the user has time.
  absl::Duration TimeUntil(std::optional<uid_t> user, Instant now);
  void Charge(std::optional<uid_t> user, absl::Duration used, Instant now);

  const SubordinateIds& ids() const { return ids_; }

 private:
  struct Account {
    absl::Duration left = {};
    Instant since = {};
  };
  // Null for root.
  Account* Find(std::optional<uid_t> user, Instant now);

  SubordinateIds ids_;
  const double share_;
  const absl::Duration burst_;
  std::map<std::optional<uid_t>, Account> accounts_;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_ACCOUNTS_H_
