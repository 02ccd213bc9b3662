// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "userspace/base/clock.h"

namespace heaptap::http {
namespace {

bool IsTemporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

bool SocketChannel::WaitFor(short events, base::Instant deadline) const {
  pollfd socket = {fd_, events, 0};
  while (base::Now() < deadline) {
    const int ready = base::PollUntil(absl::MakeSpan(&socket, 1), deadline);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

size_t SocketChannel::Read(char* to, size_t size, base::Instant deadline) {
  while (WaitFor(POLLIN, deadline)) {
    const ssize_t got = recv(fd_, to, size, MSG_DONTWAIT);
    if (got >= 0) return got;
    if (!IsTemporary(errno)) break;
  }
  return 0;
}

bool SocketChannel::Write(absl::string_view bytes, base::Instant deadline) {
  while (!bytes.empty()) {
    if (!WaitFor(POLLOUT, deadline)) return false;
    const ssize_t put = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) bytes.remove_prefix(put);
    if (put < 0 && !IsTemporary(errno)) return false;
  }
  return true;
}

bool SocketChannel::Sleep(absl::Duration duration) { return !WaitFor(POLLRDHUP, base::Now() + duration); }

}  // namespace heaptap::http
