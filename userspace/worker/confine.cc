// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace heaptap::worker {
namespace {

// For packets, reading, malloc and exit; the last ones for glibc's arenas and for sanitizers.
constexpr uint32_t kForAll[] = {
    SYS_read,         SYS_pread64,    SYS_write,          SYS_lseek,      SYS_fstat,
    SYS_statx,        SYS_newfstatat, SYS_fcntl,          SYS_sendmsg,    SYS_recvmsg,
    SYS_mmap,         SYS_munmap,     SYS_mremap,         SYS_mprotect,   SYS_madvise,
    SYS_brk,          SYS_futex,      SYS_close,          SYS_exit_group, SYS_exit,
    SYS_rt_sigreturn, SYS_getrandom,  SYS_rt_sigprocmask, SYS_sysinfo,    SYS_sched_getaffinity,
    SYS_getpid,       SYS_gettid,     SYS_sigaltstack,    SYS_sched_yield};

// For the memory bound of each job.
constexpr uint32_t kForReaders[] = {SYS_setrlimit};

// For files, folders and links; for processes and their descriptors; for a dump's file; for questions in memory; for
// probes; for sockets that ask for areas; and for the clock, where reading it takes a system call.
constexpr uint32_t kForHands[] = {
    SYS_openat,   SYS_openat2,   SYS_readlink,  SYS_readlinkat,   SYS_getdents64,   SYS_access,
    SYS_statfs,   SYS_fstatfs,   SYS_stat,      SYS_poll,         SYS_pidfd_open,   SYS_pidfd_getfd,
    SYS_pwrite64, SYS_ftruncate, SYS_fallocate, SYS_memfd_create, SYS_bpf,          SYS_perf_event_open,
    SYS_ioctl,    SYS_uname,     SYS_capget,    SYS_getsockopt,   SYS_clock_gettime};

// What it takes to open /proc/PID/{mem,maps,map_files} and to copy descriptors of other processes: ptrace access, any
// file's permissions, and map_files. DAC_OVERRIDE: /proc/PID/mem is opened for writing too. The last two: to attach
// probes, which reads the file.
constexpr uint32_t kHandsCapabilities[] = {
    CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE, CAP_CHECKPOINT_RESTORE, CAP_BPF, CAP_PERFMON};

// Where the kernel has no links to many uprobes, each probe is a perf event. Debian and Ubuntu can forbid those to all
// but CAP_SYS_ADMIN: a sysctl value that the kernel itself does not have.
constexpr int kForbiddenToPerfmon = 3;
// Before this version, links to many uprobes are missing, or see one thread only.
constexpr int kMajorWithLinks = 6;
constexpr int kMinorWithLinks = 10;

bool NeedsAdminToAttach() {
  std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
  int paranoid = 0;
  file >> paranoid;
  utsname name;
  int major = 0;
  int minor = 0;
  if (!file || uname(&name) != 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
  return paranoid >= kForbiddenToPerfmon && std::pair(major, minor) < std::pair(kMajorWithLinks, kMinorWithLinks);
}

bool SetLimit(__rlimit_resource resource, rlim_t value) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0) return false;
  if (value < limit.rlim_max) limit.rlim_max = value;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(resource, &limit) == 0;
}

// Keeps only the permitted capabilities that are in the masks.
bool KeepCapabilities(uint32_t low, uint32_t high) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].permitted &= low;
  data[1].permitted &= high;
  for (__user_cap_data_struct& half : data) {
    half.effective = half.permitted;
    half.inheritable = 0;
  }
  return syscall(SYS_capset, &header, data) == 0;
}

// No program that the process might execute can get capabilities, whatever its file has. This takes CAP_SETPCAP, which
// the daemon's unit does not give; there no_new_privs alone must suffice.
bool EmptyBoundingSet() {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; capability++) {
    if (prctl(PR_CAPBSET_DROP, capability) != 0) return errno == EPERM;
  }
  return true;
}

// The bytes that count for RLIMIT_DATA at present: with sanitizers, terabytes.
unsigned long OwnDataBytes() {
  std::ifstream file("/proc/self/statm");
  // Its fields: size, resident, shared, text, lib, data.
  unsigned long pages = 0;
  for (int field = 0; field < 6; field++) file >> pages;
  return file ? pages * static_cast<unsigned long>(sysconf(_SC_PAGESIZE)) : 0;
}

// The bytes of a reader's own data, before its first job.
unsigned long own_data_bytes = 0;

// Forbids every other system call. It fails with EPERM, so that only the job fails: a kill would cost the worker.
bool Seal(absl::Span<const uint32_t> more) {
  std::vector<struct sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
  };
  for (const absl::Span<const uint32_t> numbers : {absl::MakeConstSpan(kForAll), more}) {
    for (const uint32_t number : numbers) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const struct sock_fprog program = {.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

bool ConfineWorker() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  return prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         close_range(STDERR_FILENO + 1, ~0U, 0) == 0 && SetLimit(RLIMIT_CORE, 0);
}

bool ConfineHands() {
  uint64_t kept = 0;
  for (const uint32_t capability : kHandsCapabilities) kept |= uint64_t{1} << capability;
  if (NeedsAdminToAttach()) kept |= uint64_t{1} << CAP_SYS_ADMIN;
  return KeepCapabilities(static_cast<uint32_t>(kept), static_cast<uint32_t>(kept >> 32)) && Seal(kForHands);
}

void RunInBackground() {
  constexpr int kLowest = 19;
  setpriority(PRIO_PROCESS, 0, kLowest);
}

void RunAtOrdinaryPriority() {
  // This is a reader of a daemon: clients come first, but processes wait for their unwind tables.
  constexpr int kAfterOthers = 10;
  if (getpriority(PRIO_PROCESS, 0) < 0) setpriority(PRIO_PROCESS, 0, kAfterOthers);
}

bool ConfineReader() {
  const int adjustment = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (adjustment >= 0) {
    [[maybe_unused]] const ssize_t put = write(adjustment, "1000", 4);
    close(adjustment);
  }
  own_data_bytes = OwnDataBytes();
  return SetLimit(RLIMIT_FSIZE, 0) && SetLimit(RLIMIT_DATA, own_data_bytes + kReaderMemory) && EmptyBoundingSet() &&
         KeepCapabilities(0, 0) && Seal(kForReaders);
}

void LimitMemory(unsigned long bytes) {
  const struct rlimit limit = {own_data_bytes + std::min(bytes, kReaderMemory), own_data_bytes + kReaderMemory};
  // Not prlimit(2), which could change other processes.
  syscall(SYS_setrlimit, RLIMIT_DATA, &limit);
}

}  // namespace heaptap::worker
