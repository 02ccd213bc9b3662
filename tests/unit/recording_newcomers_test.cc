// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/recording/newcomers.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Above the kernel's largest PID: nobody knows whose processes these are, so all have one account.
constexpr pid_t kUnknown = 5'000'001;

// What the source says: for all looks of one call, and for the first looks of a user.
constexpr absl::Duration kLookTime = absl::Milliseconds(100);
constexpr absl::Duration kLookBurst = absl::Milliseconds(100);

class NewcomersTest : public ::testing::Test {
 protected:
  // The processes that one call looks at. Each look takes `cost`.
  std::vector<pid_t> Look(absl::Duration cost = {}) {
    std::vector<pid_t> seen;
    newcomers_.Look([&](pid_t pid) {
      seen.push_back(pid);
      clock_.Advance(cost);
    });
    return seen;
  }

  FakeClock clock_;
  worker::Hands hands_;
  Newcomers newcomers_{hands_, base::SubordinateIds()};
};

TEST_F(NewcomersTest, EachIsLookedAtOnce) {
  newcomers_.Add(kUnknown);
  newcomers_.Add(kUnknown);
  newcomers_.Add(kUnknown + 1);
  newcomers_.Forget(kUnknown + 1);
  EXPECT_THAT(Look(), ElementsAre(kUnknown));
  EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(NewcomersTest, WhoHasUsedUpTheAccountWaitsAndOthersDoNot) {
  newcomers_.Add(kUnknown);
  newcomers_.Add(kUnknown + 1);
  EXPECT_THAT(Look(kLookBurst), ElementsAre(kUnknown));
  newcomers_.Add(getpid());
  EXPECT_THAT(Look(), ElementsAre(getpid()));
  EXPECT_THAT(Look(), IsEmpty());
  // Time comes back, a tenth of what passes.
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(Look(), ElementsAre(kUnknown + 1));
}

TEST_F(NewcomersTest, AnOverdrawnAccountTakesLonger) {
  newcomers_.Add(kUnknown);
  newcomers_.Add(kUnknown + 1);
  // The account has nothing left, and lacks what this look took more.
  EXPECT_THAT(Look(2 * kLookBurst), ElementsAre(kUnknown));
  clock_.Advance(10 * kLookBurst);
  EXPECT_THAT(Look(), IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(Look(), ElementsAre(kUnknown + 1));
}

// Of root, who has no account.
TEST_F(NewcomersTest, ACallIsBoundedAndTheNextOneGoesOn) {
  if (getuid() != 0) GTEST_SKIP() << "an ordinary user has an account";
  std::vector<std::unique_ptr<Child>> children(3);
  std::vector<pid_t> pids;
  for (auto& child : children) {
    child = std::make_unique<Child>();
    pids.push_back(child->pid());
    newcomers_.Add(child->pid());
  }
  std::ranges::sort(pids);
  // The second one begins just in time.
  EXPECT_THAT(Look(kLookTime), ElementsAre(pids[0], pids[1]));
  // Whoever comes again comes after those who have waited.
  newcomers_.Add(pids[0]);
  EXPECT_THAT(Look(absl::Milliseconds(1)), ElementsAre(pids[2], pids[0]));
}

TEST_F(NewcomersTest, AtTheEndAccountsDoNotCount) {
  for (int i = 0; i < 4; i++) newcomers_.Add(kUnknown + i);
  std::vector<pid_t> seen;
  newcomers_.LookAtAll(
      [&](pid_t pid) {
        seen.push_back(pid);
        clock_.Advance(kLookBurst);
      },
      base::Now() + 3 * kLookBurst);
  EXPECT_THAT(seen, ElementsAre(kUnknown, kUnknown + 1, kUnknown + 2));
}

}  // namespace
}  // namespace heaptap::recording
