// SPDX-License-Identifier: Apache-2.0
//
// The places for connections of one listener, and how users share them. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_HTTP_PLACES_H_
#define HEAPTAP_USERSPACE_HTTP_PLACES_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <optional>

namespace heaptap::http {

class Places {
 public:
  struct Shares {
    size_t all;
    size_t of_user;  // at most
    size_t kept_for_root = 0;
  };
  explicit Places(const Shares& shares) : shares_(shares) {}

  // Takes a place for a user, if there is one: a quarter of all is kept for users that have none, and another part for
  // root. All clients without a known user may have all places together.
  bool Take(std::optional<uid_t> user);
  // REQUIRES: the user has a place.
  void Leave(std::optional<uid_t> user);

 private:
  const Shares shares_;
  size_t taken_ = 0;
  std::map<std::optional<uid_t>, size_t> by_user_;
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_PLACES_H_
