// SPDX-License-Identifier: Apache-2.0
//
// Reads from and writes to one HTTP client or server, with a deadline for every wait.
#ifndef HEAPTAP_USERSPACE_HTTP_CHANNEL_H_
#define HEAPTAP_USERSPACE_HTTP_CHANNEL_H_

#include <sys/types.h>

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"

namespace heaptap::http {

// Thread-compatible.
class Channel {
 public:
  virtual ~Channel() = default;

  // Reads 1 to `size` bytes. 0: the peer has finished, the deadline has passed, or the connection broke.
  virtual size_t Read(char* to, size_t size, base::Instant deadline) = 0;
  // Writes all of `bytes`. False: the deadline has passed, or the connection broke.
  virtual bool Write(absl::string_view bytes, base::Instant deadline) = 0;
  // Waits. Returns false as soon as the peer disconnects.
  virtual bool Sleep(absl::Duration duration) = 0;
};

// A connected stream socket, owned by the caller. shutdown(2) from any thread ends all waits.
class SocketChannel : public Channel {
 public:
  explicit SocketChannel(int fd) : fd_(fd) {}

  size_t Read(char* to, size_t size, base::Instant deadline) override;
  bool Write(absl::string_view bytes, base::Instant deadline) override;
  bool Sleep(absl::Duration duration) override;

 private:
  // False: the deadline has passed.
  bool WaitFor(short events, base::Instant deadline) const;

  int fd_;
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_CHANNEL_H_
