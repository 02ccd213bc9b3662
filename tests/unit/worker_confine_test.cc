// SPDX-License-Identifier: Apache-2.0
//
// What workers may not do, and what others may not do to them.
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/own_hands.h"
#include "tests/unit/worker_jobs.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/crews/crew.h"
#include "userspace/worker/confine.h"

namespace heaptap::worker {
namespace {

bool DropCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

// Whether this process could open one of those files that show a process's memory or descriptors.
bool SeesInside(pid_t pid) {
  for (const char* file : {"mem", "maps", "environ", "auxv"}) {
    const int fd = open(absl::StrCat("/proc/", pid, "/", file).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) return true;
  }
  char target[64];
  return readlink(absl::StrCat("/proc/", pid, "/fd/0").c_str(), target, sizeof(target)) >= 0;
}

class ConfineTest : public ::testing::Test {
 protected:
  ConfineTest() {
    // Of earlier tests, which end soon.
    const std::vector<pid_t> before = OwnHands();
    absl::StatusOr<std::unique_ptr<Crew>> crew = Crew::Start(Urgency::kBackground);
    if (crew.ok()) crew_ = *std::move(crew);
    EXPECT_TRUE(crew_ != nullptr) << crew.status();
    // The reader is confined once it has answered.
    const base::FileDescriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(crew_->Do({.job = kEcho, .file = {.fd = file.get()}}, {}).status.ok());
    for (const pid_t pid : OwnHands()) {
      if (std::ranges::find(before, pid) == before.end()) hands_ = pid;
    }
    EXPECT_NE(hands_, 0);
  }

  // A line of /proc/PID/status.
  static std::string Status(pid_t pid, const std::string& field) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
    for (std::string line; std::getline(file, line);) {
      absl::string_view value = line;
      if (absl::ConsumePrefix(&value, absl::StrCat(field, ":\t"))) return std::string(value);
    }
    return "";
  }
  static uint64_t Permitted(pid_t pid) { return std::stoull(Status(pid, "CapPrm"), nullptr, 16); }
  static rlimit Limit(pid_t pid, __rlimit_resource resource) {
    rlimit limit = {};
    EXPECT_EQ(prlimit(pid, resource, nullptr, &limit), 0);
    return limit;
  }

  std::unique_ptr<Crew> crew_;
  pid_t hands_ = 0;
};

// A process with its user, such as another one that was taken over, has no more capabilities than a reader has.
TEST_F(ConfineTest, OthersOfTheSameUserDoNotSeeInside) {
  const Child open_one(DropCapabilities);
  ASSERT_TRUE(open_one.is_ready());
  EXPECT_TRUE(Child([&] { return DropCapabilities() && SeesInside(open_one.pid()); }).is_ready());
  EXPECT_FALSE(Child([&] { return !DropCapabilities() || SeesInside(crew_->reader()); }).is_ready());
  EXPECT_FALSE(Child([&] { return !DropCapabilities() || SeesInside(hands_); }).is_ready());
}

TEST_F(ConfineTest, NeitherGetsNewPrivilegesNorLeavesACore) {
  for (const pid_t pid : {crew_->reader(), hands_}) {
    EXPECT_EQ(Status(pid, "NoNewPrivs"), "1");
    EXPECT_EQ(Limit(pid, RLIMIT_CORE).rlim_max, 0u);
    // All but SIGKILL and SIGSTOP.
    EXPECT_EQ(Status(pid, "SigBlk"), "fffffffe7ffbfeff");
  }
}

TEST_F(ConfineTest, AReaderHasNoCapabilitiesAndWritesNoFiles) {
  EXPECT_EQ(Status(crew_->reader(), "CapPrm"), "0000000000000000");
  EXPECT_EQ(Status(crew_->reader(), "CapEff"), "0000000000000000");
  EXPECT_EQ(Status(crew_->reader(), "Seccomp"), "2");
  if (getuid() == 0) EXPECT_EQ(Status(crew_->reader(), "CapBnd"), "0000000000000000");
  EXPECT_EQ(Limit(crew_->reader(), RLIMIT_FSIZE).rlim_max, 0u);
  std::ifstream file(absl::StrCat("/proc/", crew_->reader(), "/oom_score_adj"));
  int adjustment = 0;
  file >> adjustment;
  EXPECT_EQ(adjustment, 1000);
}

TEST_F(ConfineTest, HandsHaveOnlyTheCapabilitiesToLook) {
  constexpr uint64_t kMost = 1ULL << CAP_SYS_PTRACE | 1ULL << CAP_DAC_READ_SEARCH | 1ULL << CAP_DAC_OVERRIDE |
                             1ULL << CAP_CHECKPOINT_RESTORE | 1ULL << CAP_BPF | 1ULL << CAP_PERFMON |
                             1ULL << CAP_SYS_ADMIN;
  EXPECT_EQ(Permitted(hands_) & ~kMost, 0u) << Status(hands_, "CapPrm");
  EXPECT_EQ((Permitted(hands_) & 1ULL << CAP_SYS_PTRACE) != 0, getuid() == 0);
  EXPECT_EQ(Status(hands_, "Seccomp"), "2");
}

// Whether the kernel refuses a call before it looks at its arguments.
bool IsRefused(long result) { return result < 0 && errno == EPERM; }

TEST_F(ConfineTest, HandsDoNothingThatTheirJobsDoNotTake) {
  const Child child([] {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !ConfineHands()) return false;
    return IsRefused(socket(AF_UNIX, SOCK_STREAM, 0)) && IsRefused(syscall(SYS_fork)) &&
           IsRefused(syscall(SYS_execve, nullptr, nullptr, nullptr)) && IsRefused(syscall(SYS_kill, -1, 0)) &&
           IsRefused(syscall(SYS_ptrace, 0, 0, 0, 0)) && IsRefused(syscall(SYS_setuid, 0)) &&
           IsRefused(syscall(SYS_process_vm_writev, 0, nullptr, 0, nullptr, 0, 0)) &&
           IsRefused(syscall(SYS_connect, 0, nullptr, 0)) && IsRefused(syscall(SYS_unlink, nullptr)) &&
           IsRefused(syscall(SYS_rename, nullptr, nullptr)) && IsRefused(syscall(SYS_mount, nullptr, 0, 0, 0, 0)) &&
           IsRefused(syscall(SYS_unshare, 0)) && IsRefused(syscall(SYS_setns, -1, 0)) &&
           IsRefused(syscall(SYS_chmod, nullptr, 0)) && IsRefused(syscall(SYS_io_uring_setup, 1, nullptr)) &&
           IsRefused(syscall(SYS_prctl, PR_SET_DUMPABLE, 1)) &&
           IsRefused(syscall(SYS_init_module, nullptr, 0, nullptr)) &&
           open("/proc/self/status", O_RDONLY | O_CLOEXEC) >= 0;
  });
  EXPECT_TRUE(child.is_ready());
}

}  // namespace
}  // namespace heaptap::worker
