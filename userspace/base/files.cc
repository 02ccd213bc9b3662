// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/files.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

namespace heaptap::base {

int WriteAll(int fd, absl::string_view contents) {
  off_t offset = 0;
  while (!contents.empty()) {
    const ssize_t put = pwrite(fd, contents.data(), contents.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return EIO;
    contents.remove_prefix(put);
    offset += put;
  }
  return 0;
}

}  // namespace heaptap::base
