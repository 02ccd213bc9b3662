// SPDX-License-Identifier: Apache-2.0
//
// The bytes from and to one HTTP client, each wait with an end.
#ifndef HEAPTAP_USERSPACE_SERVICE_HTTP_CHANNEL_H_
#define HEAPTAP_USERSPACE_SERVICE_HTTP_CHANNEL_H_

#include <sys/types.h>

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace heaptap::service {

// Thread-compatible.
class HttpChannel {
 public:
  virtual ~HttpChannel() = default;

  // At least one byte, `size` at most. 0: the client sends no more, or the deadline has passed, or the connection
  // broke.
  virtual size_t Read(char* to, size_t size, absl::Time deadline) = 0;
  // All of `bytes`. False: not all of it was taken until the deadline.
  virtual bool Write(absl::string_view bytes, absl::Time deadline) = 0;
  // Waits. False, and at once: the client has gone.
  virtual bool Sleep(absl::Duration duration) = 0;
};

// A connected stream socket, which stays the caller's; it must not block (O_NONBLOCK). shutdown(2) by any thread ends
// all waiting.
class SocketChannel : public HttpChannel {
 public:
  explicit SocketChannel(int fd) : fd_(fd) {}

  size_t Read(char* to, size_t size, absl::Time deadline) override;
  bool Write(absl::string_view bytes, absl::Time deadline) override;
  bool Sleep(absl::Duration duration) override;

 private:
  // False: the deadline has passed.
  bool WaitFor(short events, absl::Time deadline) const;

  int fd_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_HTTP_CHANNEL_H_
