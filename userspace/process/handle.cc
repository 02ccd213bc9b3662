// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/messages.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/process/proc_files.h"
#include "userspace/process/short_file.h"

namespace heaptap::process {
namespace {

absl::Status NoProcess(pid_t pid) { return absl::NotFoundError(absl::StrCat("no process ", pid)); }

absl::Status AccessError(pid_t pid, const char* what, ssize_t result) {
  // Reads and writes return 0 once the address space is gone.
  if (result == 0 || (result < 0 && errno == ESRCH)) return NoProcess(pid);
  const char* reason = result < 0 ? strerror(errno) : "not all of it is mapped";
  return absl::InvalidArgumentError(absl::StrCat(what, " memory of process ", pid, ": ", reason));
}

// Some kernels open the memory of a thread that has ended. Reads then return 0. In a process with memory, a read at
// address 0 fails or returns a byte.
bool HasMemory(int memory) {
  char byte;
  return pread(memory, &byte, sizeof(byte), 0) != 0;
}

// Since Linux 6.9 (PIDFD_THREAD of linux/pidfd.h): the descriptor stands for one thread.
constexpr unsigned kOfThread = O_EXCL;

std::string ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return length > 0 ? std::string(target, length) : "";
}

}  // namespace

absl::StatusOr<base::FileDescriptor> OpenPidfd(pid_t pid) {
  base::FileDescriptor pidfd(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd.valid()) return pidfd;
  // EINVAL: not a PID, or the PID of a thread.
  if (errno == ESRCH || errno == EINVAL) return NoProcess(pid);
  return bpf::KernelError(errno, absl::StrCat("pidfd_open of process ", pid));
}

bool HasEnded(int pidfd) {
  pollfd ended = {pidfd, POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

absl::Status CheckPtraceScope(const std::string& file) {
  // YAMA_SCOPE_NO_ATTACH of the kernel (security/yama/yama_lsm.c), the highest value.
  constexpr absl::string_view kNobody = "3";
  if (absl::StripAsciiWhitespace(ReadShortFile(file)) != kNobody) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "kernel.yama.ptrace_scope is 3, with which not even root may access the memory of another process; set it to 2 "
      "or less in /etc/sysctl.d, and restart the machine");
}

absl::Status NoAccess(pid_t pid) {
  if (const absl::Status scope = CheckPtraceScope(); !scope.ok()) {
    return absl::PermissionDeniedError(
        absl::StrCat("no permission to access the memory of process ", pid, ": ", scope.message()));
  }
  // Only this capability matters: hands (crews/hands.h) have dropped the capabilities that they do not need.
  if (absl::StrContains(bpf::MissingCapabilities(), "CAP_SYS_PTRACE")) {
    return bpf::KernelError(EACCES, absl::StrCat("cannot open the memory of process ", pid));
  }
  return absl::PermissionDeniedError(
      absl::StrCat("no permission to access the memory of process ", pid,
                   ": it has capabilities that heaptap lacks, or a security module forbids it"));
}

absl::StatusOr<Handle> Handle::Open(pid_t pid) {
  absl::StatusOr<base::FileDescriptor> pidfd = OpenPidfd(pid);
  if (!pidfd.ok()) return pidfd.status();
  base::FileDescriptor memory;
  int error = 0;
  const bool is_open = AskThreads(pid, [&](pid_t thread) {
    memory = base::FileDescriptor(open(ThreadFile(thread, "mem").c_str(), O_RDWR | O_CLOEXEC));
    error = errno;
    return memory.valid() && HasMemory(memory.get());
  });
  if (!is_open) {
    if (memory.valid()) return NoProcess(pid);
    errno = error;
    if (errno == ENOENT || errno == ESRCH) return NoProcess(pid);
    if (errno == EPERM || errno == EACCES) return NoAccess(pid);
    return bpf::KernelError(errno, absl::StrCat("cannot open the memory of process ", pid));
  }
  return Handle(pid, *std::move(pidfd), std::move(memory));
}

absl::Status Handle::Read(uint64_t address, void* to, size_t size) const {
  const ssize_t got = pread(memory_.get(), to, size, static_cast<off_t>(address));
  return got == static_cast<ssize_t>(size) ? absl::OkStatus() : AccessError(pid_, "cannot read", got);
}

absl::Status Handle::Write(uint64_t address, const void* from, size_t size) const {
  const ssize_t put = pwrite(memory_.get(), from, size, static_cast<off_t>(address));
  return put == static_cast<ssize_t>(size) ? absl::OkStatus() : AccessError(pid_, "cannot write", put);
}

absl::StatusOr<base::FileDescriptor> Handle::TakeDescriptor(int fd) const {
  base::FileDescriptor copy;
  int error = 0;
  const bool is_copied = AskThreads(pid_, [&](pid_t thread) {
    const bool is_main = thread == pid_;
    const base::FileDescriptor successor(is_main ? -1 : syscall(SYS_pidfd_open, thread, kOfThread));
    copy = base::FileDescriptor(syscall(SYS_pidfd_getfd, is_main ? pidfd_.get() : successor.get(), fd, 0));
    error = errno;
    return copy.valid();
  });
  if (is_copied) return copy;
  if (error == ESRCH) return NoProcess(pid_);
  if (error == EBADF) return absl::InvalidArgumentError(absl::StrCat("process ", pid_, " has no descriptor ", fd));
  return bpf::KernelError(error, absl::StrCat("pidfd_getfd from process ", pid_));
}

std::string NameOf(pid_t pid) {
  std::ifstream file(ThreadFile(pid, "comm"));
  std::string name;
  if (!std::getline(file, name) || name.empty()) return "?";
  return base::AsciiOnly(name);
}

std::string ExecutableOf(pid_t pid) {
  std::string path;
  const bool is_known = AskThreads(pid, [&](pid_t thread) {
    path = ReadLink(ThreadFile(thread, "exe"));
    return !path.empty();
  });
  return is_known ? path : "";
}

std::string OwnExecutable() { return ReadLink("/proc/self/exe"); }

absl::StatusOr<std::vector<pid_t>> ListProcesses() {
  std::vector<pid_t> pids;
  std::error_code error;
  // A range-based for would throw if a later read of the folder failed.
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &pid) && pid > 0 && pid != getpid()) pids.push_back(pid);
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list all processes: ", error.message()));
  return pids;
}

}  // namespace heaptap::process
