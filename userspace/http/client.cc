// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/http/channel.h"

namespace heaptap::http {
namespace {

absl::Status ExplainConnect(int error) {
  if (error == ECONNREFUSED) return absl::NotFoundError("nothing listens there");
  if (error == ETIMEDOUT) return absl::DeadlineExceededError("the server does not accept connections");
  return absl::FailedPreconditionError(strerror(error));
}

absl::StatusOr<base::FileDescriptor> ConnectTo(const addrinfo& address, base::Instant deadline) {
  base::FileDescriptor connection(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.valid()) return absl::InternalError(absl::StrCat("socket: ", strerror(errno)));
  if (connect(connection.get(), address.ai_addr, address.ai_addrlen) == 0) return connection;
  if (errno != EINPROGRESS) return ExplainConnect(errno);
  for (;;) {
    if (base::Now() >= deadline) return ExplainConnect(ETIMEDOUT);
    pollfd polled = {connection.get(), POLLOUT, 0};
    const int ready = base::PollUntil(absl::MakeSpan(&polled, 1), deadline);
    if (ready < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", strerror(errno)));
    if (ready > 0) break;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return ExplainConnect(error);
  return connection;
}

void Send(SocketChannel& channel, absl::string_view method, absl::string_view target, absl::string_view host,
          base::Instant deadline) {
  // A server may refuse before it has read the request, so its answer counts even if this write fails.
  channel.Write(absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: ", host,
                             "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
                deadline);
}

}  // namespace

absl::StatusOr<base::FileDescriptor> Connect(const std::string& path, absl::Duration limit) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a path of 1 to ", sizeof(address.sun_path) - 1, " bytes"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  base::FileDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Limits the wait of connect(2) when the queue of connections is full.
  const timeval time = absl::ToTimeval(limit);
  if (!connection.valid() || setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)) != 0) {
    return absl::InternalError(absl::StrCat("socket: ", strerror(errno)));
  }
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return connection;
  switch (errno) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
      return absl::NotFoundError("nothing listens");
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError("no permission");
    case EAGAIN:
      return absl::DeadlineExceededError("the server does not accept connections");
    default:
      return absl::FailedPreconditionError(strerror(errno));
  }
}

absl::StatusOr<Answer> Exchange(const base::FileDescriptor& connection, absl::string_view method,
                                absl::string_view target, size_t max_body_bytes, absl::Duration limit) {
  const base::Instant deadline = base::Now() + limit;
  SocketChannel channel(connection.get());
  Send(channel, method, target, "localhost", deadline);
  return ReadAnswer(channel, max_body_bytes, {.deadline = deadline});
}

absl::StatusOr<base::FileDescriptor> Connect(const Url& url, absl::Duration limit) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(url.host.c_str(), url.port.c_str(), &wanted, &found);
  if (problem != 0) return absl::NotFoundError(absl::StrCat("no address of this host: ", gai_strerror(problem)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const base::Instant deadline = base::Now() + limit;
  absl::StatusOr<base::FileDescriptor> connection = absl::NotFoundError("no address of this host");
  for (const addrinfo* address = found; address != nullptr && !connection.ok(); address = address->ai_next) {
    connection = ConnectTo(*address, deadline);
  }
  return connection;
}

absl::StatusOr<Answer> Get(const base::FileDescriptor& connection, const Url& url, size_t max_body_bytes,
                           absl::Duration silence) {
  SocketChannel channel(connection.get());
  Send(channel, "GET", url.target, url.authority, base::Now() + silence);
  return ReadAnswer(channel, max_body_bytes, {.silence = silence});
}

}  // namespace heaptap::http
