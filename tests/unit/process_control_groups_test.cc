// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/unified_groups.h"
#include "userspace/process/control_groups.h"
#include "userspace/process/facts.h"

namespace heaptap::process {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kMost = 3;

TEST(GroupPath, IsBelowTheRootOfTheMount) {
  const std::string mounts =
      "22 1 0:20 / / rw - ext4 /dev/vda rw\n"
      "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
      "31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "40 22 0:26 /docker/17 /mnt/a\\040b rw - cgroup2 none rw\n";
  EXPECT_EQ(GroupPathOf("/sys/fs/cgroup/system.slice/a.service", mounts), "/system.slice/a.service");
  EXPECT_EQ(GroupPathOf("/sys/fs/cgroup", mounts), "/");
  EXPECT_EQ(GroupPathOf("/mnt/a b/x", mounts), "/docker/17/x");
  EXPECT_EQ(GroupPathOf("/mnt/a b", mounts), "/docker/17");
  EXPECT_EQ(GroupPathOf("/mnt/a bc", mounts), std::nullopt);
  EXPECT_EQ(GroupPathOf("/sys/fs/cgroups", mounts), std::nullopt);
}

TEST(GroupPath, OfTheInnermostMount) {
  const std::string mounts =
      "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
      "31 30 0:26 /inner /sys/fs/cgroup/a rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(GroupPathOf("/sys/fs/cgroup/a/b", mounts), "/inner/b");
  EXPECT_EQ(GroupPathOf("/sys/fs/cgroup/b", mounts), "/b");
}

TEST(GroupPath, HostileLines) {
  for (const std::string mounts :
       {"", "\n\n", "1 2 3", "1 2 3 / /sys rw cgroup2", "1 2 3 / /sys rw -", "- - - - - - -"}) {
    EXPECT_EQ(GroupPathOf("/sys/fs/cgroup", mounts), std::nullopt) << mounts;
  }
}

TEST(ControlGroups, WithoutPathsThereIsNoRestriction) {
  const absl::StatusOr<ControlGroups> groups = ControlGroups::Open({}, kMost);
  ASSERT_TRUE(groups.ok());
  EXPECT_TRUE(groups->empty());
  EXPECT_THAT(groups->fds(), IsEmpty());
}

TEST(ControlGroups, ContainTheirProcesses) {
  UnifiedGroup group("contain");
  const absl::StatusOr<ControlGroups> groups = ControlGroups::Open({group.folder()}, kMost);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_THAT(groups->Missing(), IsEmpty());
  const absl::StatusOr<Facts> outside = ReadFacts(getpid());
  ASSERT_TRUE(outside.ok());
  EXPECT_FALSE(groups->Contain(outside->unified_group));
  EXPECT_FALSE(groups->Contain(""));

  group.Enter();
  const absl::StatusOr<Facts> inside = ReadFacts(getpid());
  ASSERT_TRUE(inside.ok());
  EXPECT_TRUE(groups->Contain(inside->unified_group));
  EXPECT_TRUE(groups->Contain(absl::StrCat(inside->unified_group, "/below")));
  EXPECT_FALSE(groups->Contain(absl::StrCat(inside->unified_group, "beside")));
}

TEST(ControlGroups, BelowAnotherOneAreLeftOut) {
  UnifiedGroup upper("upper");
  UnifiedGroup lower("upper/lower");
  UnifiedGroup beside("upper-beside");
  const absl::StatusOr<ControlGroups> groups =
      ControlGroups::Open({lower.folder(), upper.folder() + "/", beside.folder(), upper.folder() + "/lower/.."}, kMost);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_THAT(groups->fds(), SizeIs(2));
}

TEST(ControlGroups, MayBeMissing) {
  UnifiedGroup parent("missing");
  const std::string folder = parent.folder() + "/later";
  absl::StatusOr<ControlGroups> groups = ControlGroups::Open({folder}, kMost);
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_THAT(groups->Missing(), ElementsAre(folder));
  EXPECT_THAT(groups->fds(), ElementsAre(-1));
  EXPECT_FALSE(groups->Contain("/"));
  EXPECT_THAT(groups->Refresh(), IsEmpty());

  std::optional<UnifiedGroup> later("missing/later");
  std::vector<ControlGroups::Change> changes = groups->Refresh();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].before, -1);
  EXPECT_THAT(groups->fds(), ElementsAre(changes[0].now));
  EXPECT_THAT(groups->Missing(), IsEmpty());
  EXPECT_THAT(groups->Refresh(), IsEmpty());

  const int before = changes[0].now;
  later.reset();
  EXPECT_THAT(groups->Refresh(), IsEmpty()) << "a group that is gone stays until there is a new one";
  later.emplace("missing/later");
  changes = groups->Refresh();
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].before, before);
}

TEST(ControlGroups, RefuseOtherPaths) {
  const auto refused = [](const std::string& path) {
    const absl::Status status = ControlGroups::Open({path}, kMost).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path << ": " << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused("/tmp"), HasSubstr("--cgroup /tmp: it is no control group; expected the folder"));
  EXPECT_THAT(refused("/nowhere/at/all"), HasSubstr("No such file or directory"));
  EXPECT_THAT(refused("/etc/passwd"), HasSubstr("Not a directory"));
  EXPECT_THAT(refused("system.slice"), HasSubstr("no path from the root"));
  EXPECT_THAT(refused(""), HasSubstr("no path from the root"));
}

TEST(ControlGroups, HaveABound) {
  std::vector<std::string> folders;
  UnifiedGroup parent("bound");
  for (size_t i = 0; i <= kMost; i++) folders.push_back(absl::StrCat(parent.folder(), "/", i));
  EXPECT_THAT(ControlGroups::Open(folders, kMost).status().message(), HasSubstr("at most 3 are allowed"));
  folders.pop_back();
  EXPECT_TRUE(ControlGroups::Open(folders, kMost).ok());
}

}  // namespace
}  // namespace heaptap::process
