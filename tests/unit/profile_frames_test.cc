// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/profile/frames.h"

namespace heaptap::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<AddressRange> kAllocator = {{0x1000, 0x2000}, {0x8000, 0x9000}};

std::vector<uint64_t> Cut(const std::vector<uint64_t>& frames) { return CutAllocatorFrames(frames, kAllocator); }

TEST(CutAllocatorFrames, LeavesTheCallerAndItsCallers) {
  EXPECT_THAT(Cut({0x1010, 0x1020, 0x1030, 0x5000, 0x6000}), ElementsAre(0x5000, 0x6000));
}

TEST(CutAllocatorFrames, TheProbeAlwaysGoes) {
  EXPECT_THAT(Cut({0x1010, 0x5000}), ElementsAre(0x5000));
  EXPECT_THAT(Cut({0x7000, 0x5000}), ElementsAre(0x5000));
  EXPECT_THAT(CutAllocatorFrames({0x1010, 0x1020, 0x5000}, {}), ElementsAre(0x1020, 0x5000));
}

TEST(CutAllocatorFrames, InnerFramesStay) {
  EXPECT_THAT(Cut({0x1010, 0x1020, 0x5000, 0x1030, 0x6000}), ElementsAre(0x5000, 0x1030, 0x6000));
}

TEST(CutAllocatorFrames, EveryRange) { EXPECT_THAT(Cut({0x1010, 0x8010, 0x1020, 0x5000}), ElementsAre(0x5000)); }

TEST(CutAllocatorFrames, ReturnAddressesAtTheBorders) {
  // A call in the last bytes of the allocator returns to its end; a call in the last bytes before it, to its start.
  EXPECT_THAT(Cut({0x1010, 0x2000, 0x5000}), ElementsAre(0x5000));
  EXPECT_THAT(Cut({0x1010, 0x1001, 0x5000}), ElementsAre(0x5000));
  EXPECT_THAT(Cut({0x1010, 0x1000, 0x5000}), ElementsAre(0x1000, 0x5000));
  EXPECT_THAT(Cut({0x1010, 0x2001, 0x5000}), ElementsAre(0x2001, 0x5000));
}

TEST(CutAllocatorFrames, MayLeaveNothing) {
  EXPECT_THAT(Cut({}), IsEmpty());
  EXPECT_THAT(Cut({0x1010}), IsEmpty());
  EXPECT_THAT(Cut({0x1010, 0x1020}), IsEmpty());
}

TEST(CutAllocatorFrames, HostileAddresses) {
  EXPECT_THAT(Cut({0, 0, ~uint64_t{0}}), ElementsAre(0, ~uint64_t{0}));
  // A range that a target invented may be reversed or contain everything.
  EXPECT_THAT(CutAllocatorFrames({1, 2, 3}, {{5, 1}}), ElementsAre(2, 3));
  EXPECT_THAT(CutAllocatorFrames({1, 2, 3}, {{0, ~uint64_t{0}}}), IsEmpty());
}

}  // namespace
}  // namespace heaptap::profile
