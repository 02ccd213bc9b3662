// SPDX-License-Identifier: Apache-2.0
//
// Sockets that clients connect to.
#ifndef HEAPTAP_USERSPACE_HTTP_LISTENER_H_
#define HEAPTAP_USERSPACE_HTTP_LISTENER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::http {

// A Unix socket that every local user may connect to; Access decides what each may do. The destructor removes the file,
// unless another file has taken its name. Thread-compatible.
class UnixListener {
 public:
  // Owns nothing.
  UnixListener() = default;
  // Creates the socket `path`. Its folder must belong to the user of this process (root) and be writable for no other.
  // A stale socket is replaced. InvalidArgument: not a socket path. FailedPrecondition: the folder does not exist, or
  // others may write to it, or it has another file of that name. AlreadyExists: another server listens there.
  static absl::StatusOr<UnixListener> Listen(const std::string& path);

  UnixListener(UnixListener&& other) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  ~UnixListener() { Remove(); }

  int fd() const { return socket_.get(); }

 private:
  void Remove();

  base::FileDescriptor folder_;
  std::string name_;
  base::FileDescriptor socket_;
  ino_t inode_ = 0;  // of the file
};

// Listens on ADDR:PORT over TCP, where ADDR is a numeric loopback address (127.0.0.0/8 or [::1]); port 0: any free
// port. InvalidArgument: any other address. Other codes: the kernel refused.
absl::StatusOr<base::FileDescriptor> ListenOnLoopback(absl::string_view address);

// The port that a TCP socket is bound to; 0 if `fd` is not a TCP socket.
int PortOf(int fd);

// Whether a Host header names the loopback interface, by number or as localhost, with any port. When the page of
// another site makes a browser connect here (DNS rebinding), the header has that site's name. Thread-safe.
bool IsLoopbackHost(absl::string_view host);

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_LISTENER_H_
