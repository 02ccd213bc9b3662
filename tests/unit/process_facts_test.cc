// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/folder.h"
#include "userspace/process/facts.h"

namespace heaptap::process {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uid_t kRealUser = 12345;
constexpr uid_t kEffectiveUser = 23456;

TEST(Facts, OfAnotherProcess) {
  const Child child([] {
    return prctl(PR_SET_NAME, "a\nUid:\t0\t0\t0") == 0 &&
           syscall(SYS_setresuid, kRealUser, kEffectiveUser, kRealUser) == 0;
  });
  ASSERT_TRUE(child.is_ready());
  const absl::StatusOr<Facts> facts = ReadFacts(child.pid());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->pid, child.pid());
  EXPECT_EQ(facts->command, "a\nUid:\t0\t0\t0") << "as it is";
  EXPECT_EQ(facts->user, kEffectiveUser) << "whatever the command looks like";
  EXPECT_EQ(facts->control_groups, ControlGroupPaths(ReadFile("/proc/self/cgroup"))) << "those of its parent";
}

TEST(Facts, TheOwnerIsTheOneUserWhoMayInspectTheProcess) {
  const struct {
    uid_t real, effective, saved;
    bool is_dumpable;
    std::optional<uid_t> owner;
  } kCases[] = {{kRealUser, kRealUser, kRealUser, true, kRealUser},
                {kRealUser, kRealUser, kRealUser, false, std::nullopt},
                {kRealUser, kRealUser, kEffectiveUser, true, std::nullopt},
                {kRealUser, kEffectiveUser, kEffectiveUser, true, std::nullopt},
                {kRealUser, kEffectiveUser, kRealUser, true, std::nullopt}};
  for (const auto& one : kCases) {
    const Child child([&] {
      // The kernel makes a process that changes its user one that nobody may inspect.
      return syscall(SYS_setresuid, one.real, one.effective, one.saved) == 0 &&
             prctl(PR_SET_DUMPABLE, one.is_dumpable ? 1 : 0) == 0;
    });
    ASSERT_TRUE(child.is_ready());
    const absl::StatusOr<Facts> facts = ReadFacts(child.pid());
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->owner, one.owner) << one.real << " " << one.effective << " " << one.saved << " "
                                       << one.is_dumpable;
  }
}

TEST(Facts, OfAProcessThatHasEnded) {
  Child child;
  const pid_t pid = child.pid();
  child.Kill();
  const absl::StatusOr<Facts> zombie = ReadFacts(pid);
  ASSERT_TRUE(zombie.ok()) << zombie.status();
  EXPECT_EQ(zombie->user, geteuid());
  child.End();
  const absl::Status gone = ReadFacts(pid).status();
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
}

TEST(Facts, OfNobody) {
  for (const pid_t pid : {0, -1}) EXPECT_TRUE(absl::IsNotFound(ReadFacts(pid).status())) << pid;
}

TEST(ControlGroupPaths, OneHierarchy) {
  EXPECT_THAT(ControlGroupPaths("0::/system.slice/redis.service\n"), ElementsAre("/system.slice/redis.service"));
}

TEST(ControlGroupPaths, ManyHierarchies) {
  EXPECT_THAT(ControlGroupPaths("12:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/b\n0::/\n"),
              ElementsAre("/", "/docker/a", "/docker/b"));
}

TEST(ControlGroupPaths, APathMayHaveColonsAndBlanks) {
  EXPECT_THAT(ControlGroupPaths("0::/a:b /c d\n"), ElementsAre("/a:b /c d"));
}

TEST(ControlGroupPaths, OtherTextHasNone) {
  EXPECT_THAT(ControlGroupPaths(""), IsEmpty());
  EXPECT_THAT(ControlGroupPaths("/a\n0:/b\n\n"), IsEmpty());
}

}  // namespace
}  // namespace heaptap::process
