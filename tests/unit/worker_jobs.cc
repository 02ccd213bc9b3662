// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/worker/packet.h"
#include "userspace/worker/reader_jobs.h"
#include "userspace/worker/worker.h"

namespace heaptap::worker {
namespace {

absl::Status Echo(const ReaderInput& input, WritePart write) {
  char bytes[64];
  const ssize_t got = pread(input.file, bytes, sizeof(bytes), 0);
  write(absl::StrCat(input.question, absl::string_view(bytes, got < 0 ? 0 : got)));
  for (const int other : input.others) write(other < 0 ? "-" : "+");
  return absl::OkStatus();
}

absl::Status Die(const ReaderInput&, WritePart write) {
  write("part");
  abort();
}

absl::Status Stall(const ReaderInput&, WritePart write) {
  write("part");
  // Waits for a packet that never comes. A loop would need a processor, and users do not pay for time without one.
  for (;;) ReceiveBytes(STDIN_FILENO).status().IgnoreError();
}

absl::Status Bloat(const ReaderInput&, WritePart write) {
  write("part");
  std::vector<std::string> all;
  for (;;) all.emplace_back(16 << 20, 'x');
}

absl::Status Chatter(const ReaderInput&, WritePart write) {
  for (;;) write(std::string(10000, 'x'));
}

absl::Status BreakOut(const ReaderInput&, WritePart write) {
  const auto attempt = [&](const char* name, long result) {
    if (result >= 0 || errno != EPERM) write(absl::StrCat(name, " "));
  };
  attempt("open", open("/etc/hostname", O_RDONLY));
  attempt("socket", socket(AF_UNIX, SOCK_STREAM, 0));
  attempt("fork", syscall(SYS_fork));
  attempt("kill", kill(getppid(), 0));
  attempt("ptrace", syscall(SYS_ptrace, 0, 0, 0, 0));
  attempt("execve", syscall(SYS_execve, "/bin/true", nullptr, nullptr));
  attempt("setuid", setuid(0));
  attempt("openat2", syscall(SYS_openat2, AT_FDCWD, "/etc/hostname", nullptr, 0));
  attempt("connect", syscall(SYS_connect, 0, nullptr, 0));
  attempt("dup", dup(STDIN_FILENO));
  attempt("clone", syscall(SYS_clone, 0, 0, 0, 0, 0));
  attempt("process_vm_readv", syscall(SYS_process_vm_readv, getppid(), nullptr, 0, nullptr, 0, 0));
  attempt("process_vm_writev", syscall(SYS_process_vm_writev, getppid(), nullptr, 0, nullptr, 0, 0));
  attempt("prctl", syscall(SYS_prctl, PR_SET_DUMPABLE, 1));
  attempt("prlimit64", syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, nullptr, nullptr));
  attempt("bpf", syscall(SYS_bpf, 0, nullptr, 0));
  attempt("perf_event_open", syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0));
  attempt("io_uring_setup", syscall(SYS_io_uring_setup, 1, nullptr));
  attempt("unlink", unlink("/nowhere"));
  attempt("pidfd_open", syscall(SYS_pidfd_open, getppid(), 0));
  return absl::OkStatus();
}

absl::Status Descriptors(const ReaderInput&, WritePart write) {
  for (int fd = 0; fd < 256; fd++) {
    if (fcntl(fd, F_GETFD) >= 0) write(absl::StrCat(fd, " "));
  }
  return absl::OkStatus();
}

absl::Status Forge(const ReaderInput& input, WritePart) {
  const int file = input.file;
  SendPacket(STDOUT_FILENO, "pforged", {&file, 1}).IgnoreError();
  SendPacket(STDOUT_FILENO, "?", {&file, 1}).IgnoreError();
  return absl::OkStatus();
}

}  // namespace
}  // namespace heaptap::worker

void BeforeTests(int argc, char** argv);

void BeforeTests(int argc, char** argv) {
  using namespace heaptap::worker;
  ReaderJobs jobs = AllReaderJobs();
  jobs.insert({{kEcho, Echo},
               {kDie, Die},
               {kStall, Stall},
               {kBloat, Bloat},
               {kChatter, Chatter},
               {kBreakOut, BreakOut},
               {kDescriptors, Descriptors},
               {kForge, Forge}});
  RunIfWorker(argc, argv, jobs);
}
