// SPDX-License-Identifier: Apache-2.0
//
// Runs code that was not written for hostile bytes (libdw, libiberty) in a child process without privileges, with
// bounded memory and time, whose only output is a pipe.
//
// The child is a fork. It keeps only the descriptors that it was given, leaves no core, and dies with the thread that
// made it. Once sealed (seccomp(2)) it can read, map and write its descriptors, stat paths (libc uses the same call for
// descriptors), allocate memory and end. Every other system call fails with EPERM, so it cannot open a path.
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
  // Bound of the elapsed time and, rounded up to seconds, of the processor time. 10,000 addresses of a program with 20
  // MB of debug information take a third of a second; this allows for a hundred times as much on a busy machine.
  absl::Duration time = absl::Seconds(20);
  // Bound of the memory that the child allocates. Inherited memory and mapped files do not count.
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t answer_bytes = 32 << 20;
};

// The interface of the child.
class Confined {
 public:
  explicit Confined(int pipe) : pipe_(pipe) {}
  // Appends to the answer. Ends the process if the parent no longer reads.
  void Write(absl::string_view bytes) const;
  // Cannot be undone. False: the kernel refused; the child must end.
  [[nodiscard]] bool Seal() const;

 private:
  int pipe_;
};

// The answer: everything that the child wrote until it ended or was killed.
struct Answer {
  std::string bytes;
  absl::Status status;  // OK: `work` returned true. DeadlineExceeded, ResourceExhausted (bytes); Aborted: it died.
};

// Runs `work` in a child that has the descriptor `fd`. After the fork, `work` must not wait for other threads.
// Thread-safe. REQUIRES: SIGCHLD is not ignored, and no thread waits for children of other threads.
Answer RunConfined(const Limits& limits, int fd, const std::function<bool(const Confined&)>& work);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_CONFINED_H_
