// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace heaptap::http {
namespace {

bool IsTemporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

bool SocketChannel::WaitFor(short events, absl::Time deadline) const {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    // Rounded up, so that the last millisecond does not spin.
    const int64_t milliseconds = std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 1 << 30);
    pollfd socket = {fd_, events, 0};
    const int ready = poll(&socket, 1, static_cast<int>(milliseconds));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

size_t SocketChannel::Read(char* to, size_t size, absl::Time deadline) {
  while (WaitFor(POLLIN, deadline)) {
    const ssize_t got = recv(fd_, to, size, MSG_DONTWAIT);
    if (got >= 0) return got;
    if (!IsTemporary(errno)) break;
  }
  return 0;
}

bool SocketChannel::Write(absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    if (!WaitFor(POLLOUT, deadline)) return false;
    const ssize_t put = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) bytes.remove_prefix(put);
    if (put < 0 && !IsTemporary(errno)) return false;
  }
  return true;
}

bool SocketChannel::Sleep(absl::Duration duration) { return !WaitFor(POLLRDHUP, absl::Now() + duration); }

}  // namespace heaptap::http
