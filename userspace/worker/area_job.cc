// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/area_job.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/handle.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {

absl::Status GiveArea(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output) {
  absl::string_view question = request.question;
  AreaSocket asked = {};
  if (!Take(question, asked)) return absl::InvalidArgumentError("no socket");
  const absl::StatusOr<process::Handle> process = process::Handle::Open(request.file.pid);
  if (!process.ok()) return process.status();
  const absl::StatusOr<base::FileDescriptor> socket = process->TakeDescriptor(static_cast<int>(asked.descriptor));
  if (!socket.ok()) return socket.status();
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(socket->get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0 || cookie != asked.cookie) {
    return absl::InvalidArgumentError(absl::StrCat("process ", request.file.pid, " has stopped waiting for an area"));
  }
  // Asked when the socket is a copy: after an exec it would be another program's.
  if (!output.confirm()) return absl::NotFoundError(absl::StrCat("process ", request.file.pid, " has ended"));
  char byte = 0;
  iovec data = {&byte, sizeof(byte)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int));
  }
  if (sendmsg(socket->get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(byte)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sending an area to process ", request.file.pid, ": ", strerror(errno)));
}

}  // namespace heaptap::worker
