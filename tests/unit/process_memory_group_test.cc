// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "gtest/gtest.h"
#include "userspace/process/memory_group.h"

namespace heaptap::process {
namespace {

TEST(MemoryGroupFolder, OfBothVersions) {
  EXPECT_EQ(MemoryGroupFolder("0::/user.slice/a:b\n"), "/sys/fs/cgroup/user.slice/a:b");
  EXPECT_EQ(MemoryGroupFolder("5:cpu,cpuacct:/x\n4:hugetlb,memory:/mine\n0::/other\n"), "/sys/fs/cgroup/memory/mine");
  EXPECT_EQ(MemoryGroupFolder("4:memory:/\n"), "/sys/fs/cgroup/memory/");
}

TEST(MemoryGroupFolder, OfNone) {
  EXPECT_EQ(MemoryGroupFolder(""), "");
  EXPECT_EQ(MemoryGroupFolder("5:cpu:/x\n"), "");
  EXPECT_EQ(MemoryGroupFolder("0::/../outside\n"), "") << "in another namespace";
  EXPECT_EQ(MemoryGroupFolder("nonsense\n:\n0:\n"), "");
}

TEST(JoinMemoryGroup, OnesOwnNeedsNothing) {
  EXPECT_TRUE(JoinMemoryGroup(getpid()).ok());
  EXPECT_FALSE(JoinMemoryGroup(99999999).ok()) << "there is no such process";
}

}  // namespace
}  // namespace heaptap::process
