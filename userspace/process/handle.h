// SPDX-License-Identifier: Apache-2.0
//
// A handle on one process that stays with it when its PID is reused.
//
// Memory is accessed through an open /proc/PID/mem, which belongs to the address space at the time of opening: after an
// exec or the end of the process, access fails. (process_vm_readv(2) takes a PID each time.) Not thread safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_HANDLE_H_
#define HEAPTAP_USERSPACE_PROCESS_HANDLE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::process {

// A descriptor of a process, readable when the process has ended. NotFound: no such process.
absl::StatusOr<base::FileDescriptor> OpenPidfd(pid_t pid);
bool HasEnded(int pidfd);

// Checks the kernel's setting kernel.yama.ptrace_scope. PermissionDenied: it is 3, so no process may access the memory
// of another one, whatever its capabilities. `file` holds the setting; a kernel without Yama has no such file.
absl::Status CheckPtraceScope(const std::string& file = "/proc/sys/kernel/yama/ptrace_scope");

// The error for a process that this process may not inspect. It names the setting that forbids access, or the
// capabilities that this process lacks.
absl::Status NoAccess(pid_t pid);

class Handle {
 public:
  // NotFound: no such process. PermissionDenied. The caller must check afterwards that the PID still means the same
  // process.
  static absl::StatusOr<Handle> Open(pid_t pid);

  pid_t pid() const { return pid_; }

  // Both transfer all bytes or return an error. A failed Write may have written some of the bytes.
  absl::Status Read(uint64_t address, void* to, size_t size) const;
  absl::Status Write(uint64_t address, const void* from, size_t size) const;

  // A copy of a file descriptor of the target. InvalidArgument if the target has no such descriptor.
  absl::StatusOr<base::FileDescriptor> TakeDescriptor(int fd) const;

 private:
  Handle(pid_t pid, base::FileDescriptor pidfd, base::FileDescriptor memory)
      : pid_(pid), pidfd_(std::move(pidfd)), memory_(std::move(memory)) {}
  pid_t pid_;
  base::FileDescriptor pidfd_;
  base::FileDescriptor memory_;
};

// The process's name for people (/proc/PID/comm), without control characters; "?" if the process is gone.
std::string NameOf(pid_t pid);
// The path of its executable (/proc/PID/exe); "" if the process is gone or has none.
std::string ExecutableOf(pid_t pid);
// The path of this process's executable.
std::string OwnExecutable();

// All processes of this PID namespace except this one. Unavailable: the list would not be complete.
absl::StatusOr<std::vector<pid_t>> ListProcesses();

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_HANDLE_H_
