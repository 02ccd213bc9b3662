// SPDX-License-Identifier: Apache-2.0
//
// The files in /proc that show a process. /proc/PID shows the main thread. When the main thread has ended and others go
// on, /proc/PID has no memory, no descriptors, no root folder and old user ids; the files of a living thread show the
// right ones. Thread-safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_PROC_FILES_H_
#define HEAPTAP_USERSPACE_PROCESS_PROC_FILES_H_

#include <stddef.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::process {

// The path of a file that shows one thread; the PID of a process is its main thread.
std::string ThreadFile(pid_t thread, absl::string_view name);

// Calls `ask` with the PID. If `ask` returns false and the main thread has ended, calls `ask` with each living thread
// until it returns true. Returns whether it did for a thread of the process; if not, its answers may be about other
// processes.
bool AskThreads(pid_t pid, absl::FunctionRef<bool(pid_t thread)> ask);

// Whether the main thread has not ended. In some places the kernel takes the main thread's memory for the process's, so
// that probes for one process do not reach a process without a main thread.
bool HasMainThread(pid_t pid);

// Whether all threads have begun to exit, or have ended. The kernel reports the end of a process after that moment.
bool IsEnding(pid_t pid);

struct Scheduling {
  bool is_ready;        // it computes, or would if it had a processor
  absl::Duration used;  // its processor time
};
// How one thread is scheduled, by /proc/TID/stat and /proc/TID/schedstat (proc(5)). None: it has ended, or the kernel
// does not tell.
std::optional<Scheduling> SchedulingOf(pid_t thread);

// How long a thread was ready to run and had no processor, since its start. Zero: it has ended, or the kernel does not
// tell. Source: the second number of /proc/TID/schedstat (Documentation/scheduler/sched-stats.rst).
absl::Duration ProcessorWaitOf(pid_t thread);

// The user who owns /proc/PID, whose processes may look at this one; none: the process has ended. Waits for nothing,
// because the kernel takes no lock of the process for this.
std::optional<uid_t> UserOf(pid_t pid);

// Opens a file that shows the process, with `flags` of open(2). Invalid: errno is that of open(2).
base::FileDescriptor OpenProcFile(pid_t pid, absl::string_view name, int flags);

// The first `most` bytes of a file that shows the process. The file is empty for a process without memory. Errors are
// those of open(2) and read(2), with the path.
absl::StatusOr<std::string> ReadProcFile(pid_t pid, absl::string_view name, size_t most);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_PROC_FILES_H_
