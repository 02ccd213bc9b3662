// SPDX-License-Identifier: Apache-2.0
//
// Work on hostile bytes by code that was not written for them (libdw, libiberty): in a child process that has no
// privileges worth having, takes a bounded amount of memory and time, and whose only way out is a pipe.
//
// The child is a fork, so it shares the parent's state of that moment and no more. It has no descriptors but those it
// was given, leaves no core, and dies with the thread that made it. Once sealed (seccomp(2)) it can read, map and write
// what it has open, ask for a path's status (which libc asks of descriptors by the same call), take memory and end;
// every other system call fails with EPERM: it opens no path that a file names.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_CONFINED_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_CONFINED_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace heaptap::symbolize {

struct Limits {
  // From beginning to end, and, rounded up to seconds, of the processor. 10,000 addresses of a program with 20 MB of
  // debug information take a third of a second; this is for a hundred times as much on a busy machine.
  absl::Duration time = absl::Seconds(20);
  // Of memory that the child takes beside what it inherited. Mapped files do not count.
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t answer_bytes = 32 << 20;
};

// The child's side.
class Confined {
 public:
  explicit Confined(int pipe) : pipe_(pipe) {}
  // Appends to the answer. Does not come back when nobody reads it.
  void Write(absl::string_view bytes) const;
  // No way back. False: the kernel refused, and the child must not go on.
  [[nodiscard]] bool Seal() const;

 private:
  int pipe_;
};

// What came out: all that was written until the child ended or was killed.
struct Answer {
  std::string bytes;
  absl::Status status;  // OK: `work` returned true. DeadlineExceeded, ResourceExhausted (bytes); Aborted: it died.
};

// Runs `work` in a child, with the descriptor `fd` open in it. It runs after a fork: it must not wait for other threads
// of this process. Thread-safe; SIGCHLD must not be ignored, and nobody may wait for children they did not make.
Answer RunConfined(const Limits& limits, int fd, const std::function<bool(const Confined&)>& work);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_CONFINED_H_
