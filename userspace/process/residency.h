// SPDX-License-Identifier: Apache-2.0
//
// The resident memory of a process, and the part of it that is no heap. Thread-safe.
//
// The kernel takes the lock of the process's mappings for a moment, and that of an exec, so a user can make the caller
// wait. /proc/PID/smaps would tell more, but walks all pages of the process while it holds that lock.
#ifndef HEAPTAP_USERSPACE_PROCESS_RESIDENCY_H_
#define HEAPTAP_USERSPACE_PROCESS_RESIDENCY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/profile/coverage.h"

namespace heaptap::process {

// Threads whose stacks are looked at. Those that run at this moment have no stack pointer, and are not.
inline constexpr size_t kMaxStacks = 1000;

// From /proc/PID/status (RssAnon, RssFile, RssShmem), and the pages in /proc/PID/pagemap of those mappings that a stack
// pointer (/proc/PID/task/TID/syscall) lies in (proc(5)). NotFound: the process is gone.
absl::StatusOr<profile::ResidentBytes> ReadResidency(pid_t pid);

// The stack pointer in the text of /proc/PID/task/TID/syscall; 0: the thread runs.
uint64_t StackPointerIn(absl::string_view text);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_RESIDENCY_H_
