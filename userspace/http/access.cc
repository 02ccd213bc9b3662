// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/access.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/status/status.h"
#include "userspace/base/user_ids.h"

namespace heaptap::http {

absl::StatusOr<Peer> PeerOf(int fd) {
  ucred credentials;
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  Peer peer = {.uid = credentials.uid, .groups = {credentials.gid}};
  // If the buffer is too small, the kernel reports the size that it needs.
  std::vector<gid_t> groups(64);
  size = groups.size() * sizeof(gid_t);
  int result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  if (result != 0 && errno == ERANGE) {
    groups.resize(size / sizeof(gid_t));
    result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  }
  if (result != 0) return absl::ErrnoToStatus(errno, "SO_PEERGROUPS");
  groups.resize(size / sizeof(gid_t));
  peer.groups.insert(peer.groups.end(), groups.begin(), groups.end());
  return peer;
}

Access::Access(const std::optional<Peer>& peer, std::optional<gid_t> group, std::optional<uid_t> user)
    : is_local_user_(peer.has_value()), payer_(user) {
  if (!peer.has_value()) return;
  const bool is_member =
      group.has_value() && std::find(peer->groups.begin(), peer->groups.end(), *group) != peer->groups.end();
  if (peer->uid != base::kRoot && !is_member) only_ = peer->uid;
  payer_ = only_.value_or(base::kRoot);
}

}  // namespace heaptap::http
