// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/attach/refusals.h"
#include "userspace/base/bounds.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

worker::FileVersion File(uint64_t inode) { return {.inode = inode}; }

TEST(RefusalsTest, TheProcessesOfAFileAreTakenOnce) {
  Refusals refusals;
  refusals.Note(File(1), 7);
  refusals.Note(File(1), 6);
  refusals.Note(File(1), 7);
  refusals.Note(File(2), 8);
  EXPECT_THAT(refusals.Take(File(1)), ElementsAre(6, 7));
  EXPECT_THAT(refusals.Take(File(1)), IsEmpty());
  EXPECT_THAT(refusals.Take(File(2)), ElementsAre(8));
}

TEST(RefusalsTest, BothBoundsAreCounted) {
  const uint64_t before = base::CountsBeyondBounds()["refused"];
  Refusals refusals;
  for (pid_t pid = 1; pid <= static_cast<pid_t>(Refusals::kMaxProcesses) + 1; pid++) refusals.Note(File(0), pid);
  EXPECT_EQ(base::CountsBeyondBounds()["refused"], before + 1);
  for (uint64_t inode = 1; inode <= Refusals::kMaxFiles; inode++) refusals.Note(File(inode), 1);
  EXPECT_EQ(base::CountsBeyondBounds()["refused"], before + 2);
  EXPECT_THAT(refusals.Take(File(0)), SizeIs(Refusals::kMaxProcesses));
  refusals.Note(File(Refusals::kMaxFiles), 1);
  EXPECT_THAT(refusals.Take(File(Refusals::kMaxFiles)), ElementsAre(1));
}

}  // namespace
}  // namespace heaptap::recording
