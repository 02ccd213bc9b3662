// SPDX-License-Identifier: Apache-2.0
//
// The user at the other end of a TCP connection within this machine.
#ifndef HEAPTAP_USERSPACE_HTTP_LOOPBACK_USER_H_
#define HEAPTAP_USERSPACE_HTTP_LOOPBACK_USER_H_

#include <sys/types.h>

#include <optional>

namespace heaptap::http {

// The user whose process made the peer of this connected socket, as sock_diag(7) says. None: the kernel does not say,
// or the peer is closed already. The result is for shares and accounts, not for rights. Thread-safe.
std::optional<uid_t> LoopbackUserOf(int fd);

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_LOOPBACK_USER_H_
