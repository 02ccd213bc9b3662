// SPDX-License-Identifier: Apache-2.0
//
// Which user owns a user id: one user may have many, for containers (subuid(5)).
//
// Format: lines NAME:FIRST:COUNT, with a name or a number, as in /etc/subuid. Lines that are malformed are left out.
// Thread-compatible.
#ifndef HEAPTAP_USERSPACE_BASE_SUBORDINATE_IDS_H_
#define HEAPTAP_USERSPACE_BASE_SUBORDINATE_IDS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace heaptap::base {

class SubordinateIds {
 public:
  // No user has subordinate ids.
  SubordinateIds() = default;
  // `find_user`: the id of a user's name, if there is such a user.
  SubordinateIds(absl::string_view text, const std::function<std::optional<uid_t>(const std::string&)>& find_user);
  // From /etc/subuid; without this file, no user has subordinate ids. Asks the user database of the system, which may
  // take time.
  static SubordinateIds OfSystem();

  // The user that `user` belongs to: the owner of a subordinate id, else `user` itself.
  uid_t OwnerOf(uid_t user) const;

  // All ids that begin with the same `bits` bits as `first`.
  struct Block {
    uid_t first;
    uint32_t bits;
    uid_t owner;
    bool operator==(const Block&) const = default;
  };
  // All subordinate ids, in as few blocks as possible.
  std::vector<Block> Blocks() const;

 private:
  struct Range {
    uid_t last;
    uid_t owner;
  };
  std::map<uid_t, Range> by_first_;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_SUBORDINATE_IDS_H_
