// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/files.h"

namespace heaptap::worker {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

union Descriptors {
  cmsghdr header;
  char bytes[CMSG_SPACE(kMaxPacketDescriptors * sizeof(int))];
};

// Fills in `message`, which may have room for descriptors.
absl::StatusOr<std::string> Receive(int socket, msghdr& message) {
  std::string bytes(kMaxPacketBytes, '\0');
  iovec piece = {bytes.data(), bytes.size()};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ssize_t got;
  while ((got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  message.msg_iov = nullptr;
  if (got < 0) message.msg_controllen = 0;
  if (got < 0) return absl::UnavailableError(absl::StrCat("recvmsg: ", strerror(errno)));
  if (got == 0) return absl::UnavailableError("the other end is gone");
  if ((message.msg_flags & MSG_TRUNC) != 0) return absl::InvalidArgumentError("the packet is too long");
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

}  // namespace

absl::Status SendPacket(int socket, absl::string_view bytes, absl::Span<const int> descriptors) {
  if (bytes.size() > kMaxPacketBytes || descriptors.size() > kMaxPacketDescriptors) {
    return absl::InvalidArgumentError("the packet is too large");
  }
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  Descriptors control = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    memcpy(CMSG_DATA(&control.header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ssize_t sent;
  while ((sent = sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return sent < 0 ? absl::UnavailableError(absl::StrCat("sendmsg: ", strerror(errno))) : absl::OkStatus();
}

absl::StatusOr<Packet> ReceivePacket(int socket) {
  Packet packet;
  Descriptors control = {};
  msghdr message = {};
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  absl::StatusOr<std::string> bytes = Receive(socket, message);
  // The descriptors are taken over in any case, so that they are closed.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
      packet.descriptors.emplace_back(fd);
    }
  }
  if (!bytes.ok()) return bytes.status();
  if ((message.msg_flags & MSG_CTRUNC) != 0) return absl::InvalidArgumentError("the packet has too many descriptors");
  packet.bytes = *std::move(bytes);
  return packet;
}

absl::StatusOr<std::string> ReceiveBytes(int socket) {
  msghdr message = {};
  return Receive(socket, message);
}

absl::StatusOr<base::FileDescriptor> PutInFile(absl::string_view bytes) {
  base::FileDescriptor file(memfd_create("heaptap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return absl::UnavailableError(absl::StrCat("memfd_create: ", strerror(errno)));
  if (const int error = base::WriteAll(file.get(), bytes); error != 0) {
    return absl::UnavailableError(absl::StrCat("a file in memory: ", strerror(error)));
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return absl::UnavailableError(absl::StrCat("F_ADD_SEALS: ", strerror(errno)));
  }
  return file;
}

absl::StatusOr<std::string> TakeFromFile(int file, size_t most) {
  // Only files in memory have seals, so this cannot be a file that blocks.
  const int seals = fcntl(file, F_GET_SEALS);
  struct stat status;
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file, &status) != 0) {
    return absl::InvalidArgumentError("not a sealed file");
  }
  if (static_cast<uint64_t>(status.st_size) > most) return absl::InvalidArgumentError("the file is too large");
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::InvalidArgumentError("a sealed file cannot be read");
    at += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace heaptap::worker
