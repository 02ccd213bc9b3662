// SPDX-License-Identifier: Apache-2.0
//
// Identifies a client and decides which processes it may see, dump and control.
#ifndef HEAPTAP_USERSPACE_HTTP_ACCESS_H_
#define HEAPTAP_USERSPACE_HTTP_ACCESS_H_

#include <sys/types.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace heaptap::http {

// The user at the other end of a Unix socket, as reported by the kernel.
struct Peer {
  uid_t uid = 0;
  std::vector<gid_t> groups = {};  // the primary one too
};

// The user that connected the socket `fd`, with the effective ids of that moment. Thread-safe.
absl::StatusOr<Peer> PeerOf(int fd);

// What one peer may do. Root and members of the configured group may see and control all processes. So may a peer
// without a known user: it came over TCP, which an administrator has opened. All other users may see, dump and control
// only processes that they own (process::Facts); other processes do not exist for them. Thread-safe.
class Access {
 public:
  // `user`: the user of a connection over TCP, if known.
  Access(const std::optional<Peer>& peer, std::optional<gid_t> group, std::optional<uid_t> user = std::nullopt);

  // Whether the client is a process of this machine that shows its user, so not a browser.
  bool IsLocalUser() const { return is_local_user_; }
  bool SeesAll() const { return !only_.has_value(); }
  // The user of a client that does not see all processes.
  std::optional<uid_t> user() const { return only_; }
  // The user whose account pays for the answers: root for members of the group; none if the user is unknown.
  std::optional<uid_t> payer() const { return payer_; }
  // `owner`: the owner of a process (profile::ProcessSummary::owner).
  bool Sees(std::optional<uid_t> owner) const { return SeesAll() || (owner.has_value() && *owner == *only_); }

 private:
  bool is_local_user_;
  std::optional<uid_t> only_;  // processes of this user only
  std::optional<uid_t> payer_;
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_ACCESS_H_
