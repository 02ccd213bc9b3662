// SPDX-License-Identifier: Apache-2.0
//
// A hold on one process that cannot slip to another one when its PID is used again.
//
// Memory is read and written through an open /proc/PID/mem, which belongs to the address space that was there when it
// was opened: after an exec or the end of the process, access fails. (process_vm_readv(2) takes a PID each time.)
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROCESS_HANDLE_H_
#define HEAPTAP_USERSPACE_SERVICE_PROCESS_HANDLE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::service {

class ProcessHandle {
 public:
  // NotFound: no such process. PermissionDenied. The caller makes sure afterwards that the PID still meant the process
  // it has in mind.
  static absl::StatusOr<ProcessHandle> Open(pid_t pid);

  pid_t pid() const { return pid_; }
  // Readable when the process has ended.
  int pidfd() const { return pidfd_.get(); }
  bool HasEnded() const;

  // Whole or not at all, as far as the target lets us tell.
  absl::Status Read(uint64_t address, void* to, size_t size) const;
  absl::Status Write(uint64_t address, const void* from, size_t size) const;

  // A copy of the target's file descriptor. InvalidArgument if it has no such descriptor.
  absl::StatusOr<elf::FileDescriptor> TakeDescriptor(int fd) const;

 private:
  ProcessHandle(pid_t pid, elf::FileDescriptor pidfd, elf::FileDescriptor memory)
      : pid_(pid), pidfd_(std::move(pidfd)), memory_(std::move(memory)) {}
  pid_t pid_;
  elf::FileDescriptor pidfd_;
  elf::FileDescriptor memory_;
};

// The process's name for people (/proc/PID/comm), without control characters; "?" if it is gone.
std::string ProcessName(pid_t pid);
// What it executes (/proc/PID/exe); "" if it is gone or has none.
std::string ProcessExecutable(pid_t pid);
// The user that the process belongs to wholly, who may look at it besides root; nothing: nobody, or it is gone.
std::optional<uid_t> ProcessOwner(pid_t pid);
// What this process executes.
std::string OwnExecutable();

// Of this PID name space, without our own.
std::vector<pid_t> AllProcesses();

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_HANDLE_H_
