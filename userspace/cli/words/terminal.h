// SPDX-License-Identifier: Apache-2.0
//
// The terminal that a command writes to. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_TERMINAL_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_TERMINAL_H_

#include <cstddef>

namespace heaptap::cli {

// The columns of the terminal at this descriptor; 0: it is not a terminal.
size_t TerminalWidth(int fd);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_TERMINAL_H_
