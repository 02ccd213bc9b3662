// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace heaptap::http {
namespace {

// More clients than are served at once may wait, so that surplus clients get an answer (503).
constexpr int kBacklog = 128;
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

// Any user may connect: Access decides what each may do.
constexpr mode_t kSocketMode = 0666;

// A path by which the kernel finds a socket in an open folder, wherever the folder has been moved.
absl::StatusOr<sockaddr_un> AddressIn(int folder, const std::string& name) {
  const std::string path = absl::StrCat("/proc/self/fd/", folder, "/", name);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the name is too long for a socket"));
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

absl::StatusOr<base::FileDescriptor> OpenFolder(const std::string& folder) {
  base::FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open the socket's folder ", folder, ": ", strerror(errno)));
  }
  struct stat status;
  if (fstat(opened.get(), &status) != 0) return absl::ErrnoToStatus(errno, folder);
  if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the socket's folder ", folder, " must belong to root and be writable for root only; choose another one"));
  }
  return opened;
}

// Trusts only ECONNREFUSED: a living server may be too busy to accept.
bool IsStale(const sockaddr_un& address) {
  const base::FileDescriptor client(socket(AF_UNIX, kSocketFlags, 0));
  return client.valid() && connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

// Removes a stale socket to make way for a new one.
absl::Status RemoveStale(int folder, const std::string& name, const sockaddr_un& address, const std::string& path) {
  struct stat status;
  if (fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : absl::ErrnoToStatus(errno, path);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists and is not a socket; remove it or choose another path"));
  }
  if (!IsStale(address)) {
    return absl::AlreadyExistsError(absl::StrCat("another collector already listens on ", path, "; stop it first"));
  }
  if (unlinkat(folder, name.c_str(), 0) != 0) return absl::ErrnoToStatus(errno, path);
  return absl::OkStatus();
}

struct HostAndPort {
  std::string host;
  std::optional<int> port;
};

// HOST, HOST:PORT, [HOST] or [HOST]:PORT.
std::optional<HostAndPort> SplitHost(absl::string_view text) {
  HostAndPort result;
  if (absl::ConsumePrefix(&text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    result.host = absl::StrCat("[", text.substr(0, end), "]");
    text.remove_prefix(end + 1);
  } else {
    const size_t end = std::min(text.find(':'), text.size());
    result.host = std::string(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (text.empty()) return result;
  int port = 0;
  if (!absl::ConsumePrefix(&text, ":") || text.empty() || text.size() > 5 ||
      text.find_first_not_of("0123456789") != absl::string_view::npos || !absl::SimpleAtoi(text, &port) ||
      port > 65535) {
    return std::nullopt;
  }
  result.port = port;
  return result;
}

std::optional<in_addr> ParseLoopback4(const std::string& host) {
  in_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) != 1) return std::nullopt;
  constexpr uint32_t kLoopbackNet = 127;
  if (ntohl(address.s_addr) >> 24 != kLoopbackNet) return std::nullopt;
  return address;
}

bool IsLoopback6(const std::string& host) { return host == "[::1]"; }

}  // namespace

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  folder_ = std::move(other.folder_);
  name_ = std::move(other.name_);
  socket_ = std::move(other.socket_);
  inode_ = other.inode_;
  return *this;
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path) {
  const size_t slash = path.rfind('/');
  UnixListener listener;
  listener.name_ = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string& name = listener.name_;
  if (name.empty() || name == "." || name == ".." || absl::StrContains(path, absl::string_view("\0", 1))) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a valid path for a socket"));
  }
  absl::StatusOr<base::FileDescriptor> folder = OpenFolder(slash == std::string::npos ? "."
                                                           : slash == 0               ? "/"
                                                                                      : path.substr(0, slash));
  if (!folder.ok()) return folder.status();
  const absl::StatusOr<sockaddr_un> address = AddressIn(folder->get(), name);
  if (!address.ok()) return address.status();

  // Two collectors that start at once must not mistake each other's new socket for a stale one.
  const base::FileDescriptor lock(open(absl::StrCat("/proc/self/fd/", folder->get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("another collector is starting to listen on ", path, "; stop it first"));
  }
  const absl::Status removed = RemoveStale(folder->get(), name, *address, path);
  if (!removed.ok()) return removed;
  base::FileDescriptor fd(socket(AF_UNIX, kSocketFlags, 0));
  struct stat status;
  // Nobody else can change what is in the folder, so the file of that name is the socket.
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      fchmodat(folder->get(), name.c_str(), kSocketMode, 0) != 0 ||
      fstatat(folder->get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || listen(fd.get(), kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", path));
  }
  listener.folder_ = std::move(*folder);
  listener.socket_ = std::move(fd);
  listener.inode_ = status.st_ino;
  return listener;
}

void UnixListener::Remove() {
  if (!socket_.valid()) return;
  struct stat status;
  if (fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_ino == inode_) {
    unlinkat(folder_.get(), name_.c_str(), 0);
  }
  socket_.Reset();
}

absl::StatusOr<base::FileDescriptor> ListenOnLoopback(absl::string_view address) {
  const std::optional<HostAndPort> parts = SplitHost(address);
  sockaddr_in address4 = {};
  sockaddr_in6 address6 = {};
  const sockaddr* to_bind = nullptr;
  socklen_t size = 0;
  if (parts.has_value() && parts->port.has_value()) {
    if (const std::optional<in_addr> number = ParseLoopback4(parts->host)) {
      address4 = {.sin_family = AF_INET,
                  .sin_port = htons(static_cast<uint16_t>(*parts->port)),
                  .sin_addr = *number,
                  .sin_zero = {}};
      to_bind = reinterpret_cast<const sockaddr*>(&address4);
      size = sizeof(address4);
    } else if (IsLoopback6(parts->host)) {
      address6.sin6_family = AF_INET6;
      address6.sin6_port = htons(static_cast<uint16_t>(*parts->port));
      address6.sin6_addr = in6addr_loopback;
      to_bind = reinterpret_cast<const sockaddr*>(&address6);
      size = sizeof(address6);
    }
  }
  if (to_bind == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on '", address,
                     "': expected a numeric loopback address and a port, such as 127.0.0.1:8078 or [::1]:8078"));
  }
  base::FileDescriptor fd(socket(to_bind->sa_family, kSocketFlags, 0));
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), to_bind, size) != 0 || listen(fd.get(), kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", address));
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

bool IsLoopbackHost(absl::string_view host) {
  const std::optional<HostAndPort> parts = SplitHost(host);
  if (!parts.has_value()) return false;
  return absl::EqualsIgnoreCase(parts->host, "localhost") || IsLoopback6(parts->host) ||
         ParseLoopback4(parts->host).has_value();
}

}  // namespace heaptap::http
