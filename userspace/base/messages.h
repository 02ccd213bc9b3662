// SPDX-License-Identifier: Apache-2.0
//
// Messages for people on stderr, each with one write(2), so that lines of several processes do not mix. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_MESSAGES_H_
#define HEAPTAP_USERSPACE_BASE_MESSAGES_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace heaptap::base {

// Both escape unprintable bytes (Printable).
//
// Writes "heaptap: <line>", truncated if it is very long.
void Say(absl::string_view line);
// Writes the line alone.
void SayPlain(absl::string_view line);

// While it lives, a separate thread writes the messages of this process that would have to wait. So no other thread
// waits if nobody reads stderr, which may be a pipe, a terminal or a journal. Make one at a time, and say nothing after
// its end.
class MessageThread {
 public:
  // Bytes of lines that wait. Further lines are lost until those that wait are written; then their number is written.
  static constexpr size_t kMaxBytes = 1 << 20;
  // How long the destructor waits for a reader.
  static constexpr absl::Duration kLastPatience = absl::Seconds(1);

  // If the thread cannot be started, messages are written as before.
  MessageThread();
  ~MessageThread();
  MessageThread(const MessageThread&) = delete;
  MessageThread& operator=(const MessageThread&) = delete;
};

// Makes text that a process chose safe for a terminal: bytes other than printable ASCII become '?'.
std::string AsciiOnly(absl::string_view text);

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_MESSAGES_H_
