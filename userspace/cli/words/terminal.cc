// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/terminal.h"

#include <sys/ioctl.h>

namespace heaptap::cli {

size_t TerminalWidth(int fd) {
  winsize size;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace heaptap::cli
