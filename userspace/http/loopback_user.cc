// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/loopback_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <cstdint>

#include "userspace/base/file_descriptor.h"

namespace heaptap::http {
namespace {

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

struct Reply {
  nlmsghdr header;
  inet_diag_msg message;
};

// Describes one end of the connection in sock_diag's form of addresses.
bool Describe(const sockaddr_storage& end, __be16& port, __be32 (&address)[4]) {
  if (end.ss_family == AF_INET) {
    const auto& end4 = reinterpret_cast<const sockaddr_in&>(end);
    port = end4.sin_port;
    memcpy(address, &end4.sin_addr, sizeof(end4.sin_addr));
    return true;
  }
  const auto& end6 = reinterpret_cast<const sockaddr_in6&>(end);
  port = end6.sin6_port;
  memcpy(address, &end6.sin6_addr, sizeof(end6.sin6_addr));
  return end.ss_family == AF_INET6;
}

}  // namespace

std::optional<uid_t> LoopbackUserOf(int fd) {
  sockaddr_storage own = {};
  sockaddr_storage peer = {};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
    return std::nullopt;
  }
  // The peer's socket has the two ends the other way round.
  Question question = {};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<uint8_t>(peer.ss_family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = UINT32_MAX;
  inet_diag_sockid& id = question.request.id;
  id.idiag_cookie[0] = id.idiag_cookie[1] = static_cast<uint32_t>(INET_DIAG_NOCOOKIE);
  if (!Describe(peer, id.idiag_sport, id.idiag_src) || !Describe(own, id.idiag_dport, id.idiag_dst)) {
    return std::nullopt;
  }
  const base::FileDescriptor diag(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!diag.valid() || send(diag.get(), &question, sizeof(question), 0) < 0) return std::nullopt;
  // The kernel has answered before send returns.
  Reply reply = {};
  const ssize_t got = recv(diag.get(), &reply, sizeof(reply), MSG_DONTWAIT);
  if (got < static_cast<ssize_t>(sizeof(reply)) || reply.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  // A socket that its process has closed belongs to no process, and the kernel reports root as its user.
  if (reply.message.idiag_inode == 0) return std::nullopt;
  return reply.message.idiag_uid;
}

}  // namespace heaptap::http
