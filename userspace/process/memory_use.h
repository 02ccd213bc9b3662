// SPDX-License-Identifier: Apache-2.0
//
// How much memory a process uses, and may use. Thread-safe. Takes no lock of the process, so no user can make it wait.
#ifndef HEAPTAP_USERSPACE_PROCESS_MEMORY_USE_H_
#define HEAPTAP_USERSPACE_PROCESS_MEMORY_USE_H_

#include <sys/types.h>

#include <cstdint>

namespace heaptap::process {

struct MemoryUse {
  int64_t resident_bytes = -1;  // -1: unknown, for example because the process is ending
  int64_t limit_bytes = -1;     // of its memory control group; -1: unknown, or none
};

// The resident bytes in /proc/PID/statm (proc_pid_statm(5)); -1: unknown.
int64_t ResidentBytes(pid_t pid);
// The resident bytes without files and shared memory; -1: unknown.
int64_t AnonymousBytes(pid_t pid);

// ResidentBytes, and the limit of its memory control group (cgroups(7), version 1 or 2).
MemoryUse ReadMemoryUse(pid_t pid);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_MEMORY_USE_H_
