// SPDX-License-Identifier: Apache-2.0
//
// The resident memory of a process, and the part of it that is not heap. Thread-safe.
//
// The kernel takes the locks of the process's mappings and of an exec for a moment, so a user can make the caller wait.
// /proc/PID/smaps would tell more, but walks all pages of the process while it holds the lock of the mappings.
#ifndef HEAPTAP_USERSPACE_PROCESS_RESIDENCY_H_
#define HEAPTAP_USERSPACE_PROCESS_RESIDENCY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/profile/coverage.h"

namespace heaptap::process {

// The most threads whose stacks are looked at. Threads that are running at the moment show no stack pointer, and are
// left out.
inline constexpr size_t kMaxStacks = 1000;

// Reads /proc/PID/status (RssAnon, RssFile, RssShmem) and, in /proc/PID/pagemap, the pages of the mappings that hold a
// stack pointer (/proc/PID/task/TID/syscall); see proc(5). NotFound: the process is gone.
absl::StatusOr<profile::ResidentBytes> ReadResidency(pid_t pid);

// The stack pointer in the text of /proc/PID/task/TID/syscall; 0: the thread runs.
uint64_t StackPointerIn(absl::string_view text);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_RESIDENCY_H_
