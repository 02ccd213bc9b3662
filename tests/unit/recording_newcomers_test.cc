// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/recording/newcomers.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class NewcomersTest : public ::testing::Test {
 protected:
  // The processes that one call looks at.
  std::vector<pid_t> Look() {
    std::vector<pid_t> seen;
    newcomers_.Look([this](pid_t pid) { return !without_room_.contains(pid); },
                    [&](pid_t pid) { seen.push_back(pid); });
    return seen;
  }

  std::set<pid_t> without_room_;
  Newcomers newcomers_;
};

TEST_F(NewcomersTest, EachIsLookedAtOnce) {
  newcomers_.Add(1);
  newcomers_.Add(1);
  newcomers_.Add(2);
  newcomers_.Forget(2);
  EXPECT_THAT(Look(), ElementsAre(1));
  EXPECT_TRUE(newcomers_.empty());
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(NewcomersTest, WhoHasNoRoomWaitsAndOthersDoNot) {
  for (const pid_t pid : {1, 2, 3}) newcomers_.Add(pid);
  without_room_ = {1, 2};
  EXPECT_THAT(Look(), ElementsAre(3));
  without_room_ = {1};
  EXPECT_THAT(Look(), ElementsAre(2));
  EXPECT_FALSE(newcomers_.empty());
}

TEST_F(NewcomersTest, ACallIsBoundedAndTheNextOneGoesOn) {
  constexpr pid_t kLast = Newcomers::kMaxAtOnce + 2;
  for (pid_t pid = 1; pid <= kLast; pid++) newcomers_.Add(pid);
  EXPECT_THAT(Look(), SizeIs(Newcomers::kMaxAtOnce));
  // Whoever comes again comes after those who have waited.
  newcomers_.Add(1);
  EXPECT_THAT(Look(), ElementsAre(kLast - 1, kLast, 1));
}

}  // namespace
}  // namespace heaptap::recording
