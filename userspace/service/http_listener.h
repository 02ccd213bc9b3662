// SPDX-License-Identifier: Apache-2.0
//
// Sockets that clients connect to.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_LISTENER_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_LISTENER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::service {

// A Unix socket that every local user may connect to: who may do what is decided by who it is. The file goes with the
// object, unless another one has its name by then. Thread-compatible.
class UnixListener {
 public:
  // Owns nothing.
  UnixListener() = default;
  // Makes the socket `path`, whose folder must belong to the user of this process (root), and no other may write to it.
  // A socket that nobody listens on any more is replaced. InvalidArgument: no path for a socket. FailedPrecondition:
  // no such folder, or others may write to it, or it has another file of that name. AlreadyExists: another server
  // listens there.
  static absl::StatusOr<UnixListener> Listen(const std::string& path);

  UnixListener(UnixListener&& other) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { Remove(); }

  int fd() const { return socket_.get(); }

 private:
  void Remove();

  elf::FileDescriptor folder_;
  std::string name_;
  elf::FileDescriptor socket_;
  ino_t inode_ = 0;  // of the file
};

// Listens on ADDR:PORT by TCP, the address a number of this host's own (127.0.0.0/8 or [::1]); port 0: a free one.
// InvalidArgument: something else. Other codes: the kernel refused.
absl::StatusOr<elf::FileDescriptor> ListenOnLoopback(absl::string_view address);

// The port that a TCP socket is bound to; 0 if it is none.
int PortOf(int fd);

// Whether a Host header names this host's own loopback interface, by number or as localhost, with any port. A page of
// another site that gets a browser to ask here (DNS rebinding) says its own name there. Thread-safe.
bool IsLoopbackHost(absl::string_view host);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_LISTENER_H_
