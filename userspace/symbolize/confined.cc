// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::symbolize {
namespace {

// For reading, malloc and exit; the last ones for glibc's arenas and for sanitizers.
constexpr uint32_t kAllowed[] = {SYS_read,           SYS_pread64,    SYS_write,      SYS_lseek,
                                 SYS_fstat,          SYS_newfstatat, SYS_mmap,       SYS_munmap,
                                 SYS_mremap,         SYS_mprotect,   SYS_madvise,    SYS_brk,
                                 SYS_futex,          SYS_close,      SYS_exit_group, SYS_rt_sigreturn,
                                 SYS_rt_sigprocmask, SYS_getrandom,  SYS_sysinfo,    SYS_sched_getaffinity,
                                 SYS_getpid,         SYS_gettid,     SYS_sigaltstack};

// The bytes that count for RLIMIT_DATA at present.
uint64_t OwnDataBytes() {
  unsigned long data = 0;
  FILE* file = fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  // Its fields: size, resident, shared, text, lib, data.
  char line[256];
  if (fgets(line, sizeof(line), file) != nullptr) {
    char* at = line;
    for (int field = 0; field < 6; field++) data = strtoul(at, &at, 10);
  }
  fclose(file);
  return uint64_t{data} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

bool SetLimit(__rlimit_resource resource, uint64_t value) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max = std::min<rlim_t>(value, limit.rlim_max);
  return setrlimit(resource, &limit) == 0;
}

// Drops privileges and sets limits. `data_bytes`: OwnDataBytes of the parent. Closes all descriptors but `fd` and
// `pipe`.
bool Confine(const Limits& limits, uint64_t data_bytes, int fd, int pipe) {
  // Ctrl-C is for the parent, which decides about the child. Without SIGXCPU the hard limit still ends the child.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_DUMPABLE, 0) != 0) return false;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  // Closes everything else: sockets, maps, other processes' memory.
  const unsigned low = std::min(fd, pipe);
  const unsigned high = std::max(fd, pipe);
  if (low > 0 && close_range(0, low - 1, 0) != 0) return false;
  if (high > low + 1 && close_range(low + 1, high - 1, 0) != 0) return false;
  if (close_range(high + 1, ~0U, 0) != 0) return false;
  return SetLimit(RLIMIT_CORE, 0) && SetLimit(RLIMIT_FSIZE, 0) &&
         SetLimit(RLIMIT_CPU, static_cast<uint64_t>(absl::ToInt64Seconds(limits.time)) + 1) &&
         SetLimit(RLIMIT_DATA, data_bytes + limits.memory_bytes);
}

// Reads everything that the child writes until it ends; an error if a limit is reached. The end of the pipe is not
// enough: a child of another thread may have inherited it, and this child may close it and stay.
absl::Status ReadAnswer(int pipe, int pidfd, const Limits& limits, absl::Time deadline, std::string& bytes) {
  std::vector<char> buffer(1 << 16);
  bool open = true;
  for (;;) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0) return absl::DeadlineExceededError("it took too much time");
    struct pollfd polled[] = {{.fd = open ? pipe : -1, .events = POLLIN, .revents = 0},
                              {.fd = pidfd, .events = POLLIN, .revents = 0}};
    constexpr int64_t kLongestWait = 1 << 20;
    const int ready = poll(polled, 2, static_cast<int>(std::min(left, kLongestWait)));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    if (ready < 0) return absl::ErrnoToStatus(errno, "poll");
    if (polled[0].revents == 0) return absl::OkStatus();
    const ssize_t count = read(pipe, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "read");
    if (count == 0) open = false;
    if (static_cast<uint64_t>(count) > limits.answer_bytes - bytes.size()) {
      return absl::ResourceExhaustedError("its answer is too long");
    }
    bytes.append(buffer.data(), static_cast<size_t>(count));
  }
}

absl::Status Reap(pid_t child) {
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(child, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped < 0) return absl::ErrnoToStatus(errno, "waitpid");
  if (WIFSIGNALED(status)) return absl::AbortedError(absl::StrCat("it was killed by signal ", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0) return absl::AbortedError(absl::StrCat("it ended with status ", WEXITSTATUS(status)));
  return absl::OkStatus();
}

// An error that does not depend on the file.
absl::Status CannotRun(const char* call) { return absl::UnavailableError(absl::StrCat(call, ": ", strerror(errno))); }

}  // namespace

void Confined::Write(absl::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = write(pipe_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) _exit(1);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

bool Confined::Seal() const {
  std::vector<struct sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
  };
  for (uint32_t number : kAllowed) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const struct sock_fprog program = {.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

Answer RunConfined(const Limits& limits, int fd, const std::function<bool(const Confined&)>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {.bytes = "", .status = CannotRun("pipe")};
  elf::FileDescriptor answer_end(ends[0]);
  elf::FileDescriptor child_end(ends[1]);
  const absl::Time deadline = absl::Now() + limits.time;
  const uint64_t data_bytes = OwnDataBytes();
  const pid_t child = fork();
  if (child < 0) return {.bytes = "", .status = CannotRun("fork")};
  if (child == 0) {
    // An exception (memory is limited here) must not reach the handlers of the parent, of which the child has copies.
    const bool done = [&]() noexcept {
      return Confine(limits, data_bytes, fd, child_end.get()) && work(Confined(child_end.get()));
    }();
    // _exit: the destructors and buffers belong to the parent.
    _exit(done ? 0 : 1);
  }
  child_end.Reset();
  Answer answer;
  elf::FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  answer.status = pidfd.valid() ? ReadAnswer(answer_end.get(), pidfd.get(), limits, deadline, answer.bytes)
                                : CannotRun("pidfd_open");
  if (!answer.status.ok()) kill(child, SIGKILL);
  const absl::Status reaped = Reap(child);
  if (answer.status.ok()) answer.status = reaped;
  return answer;
}

}  // namespace heaptap::symbolize
