// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/http/channel.h"

namespace heaptap::http {

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
  const absl::Time deadline = absl::Now() + limit;
  SocketChannel channel(connection.get());
  // A server may refuse before it has read the request, so its answer counts even if this write fails.
  channel.Write(absl::StrCat(method, " ", target,
                             " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
                deadline);
  return ReadAnswer(channel, max_body_bytes, deadline);
}

}  // namespace heaptap::http
