// SPDX-License-Identifier: Apache-2.0
//
// Who asks, and which processes they may see, dump and steer.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_ACCESS_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_ACCESS_H_

#include <sys/types.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace heaptap::service {

// The user at the other end of a Unix socket, as the kernel says.
struct Peer {
  uid_t uid = 0;
  std::vector<gid_t> groups = {};  // the primary one too
};

// The user that connected the socket `fd` (effective ids at that moment). Thread-safe.
absl::StatusOr<Peer> PeerOf(int fd);

// What one peer may do. Root and members of the configured group see all and do all, and so does a peer whose user is
// not known: that one came by TCP, which an administrator has opened. Others see, dump and steer only processes that
// are wholly theirs; for them the rest does not exist. Thread-safe.
class Access {
 public:
  Access(const std::optional<Peer>& peer, std::optional<gid_t> group);

  bool SeesAll() const { return !only_.has_value(); }
  // `owner`: of a process (ProcessSummary::owner).
  bool Sees(std::optional<uid_t> owner) const { return SeesAll() || (owner.has_value() && *owner == *only_); }

 private:
  std::optional<uid_t> only_;  // processes of this user only
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_ACCESS_H_
