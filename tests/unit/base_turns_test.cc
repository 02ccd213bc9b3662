// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/clock.h"
#include "userspace/base/turns.h"

namespace heaptap::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsNull;
using ::testing::NotNull;

constexpr uid_t kGreedy = 1000;
constexpr uid_t kOther = 1001;
constexpr uid_t kSubordinate = 100'000;  // of the greedy user

SubordinateIds Ids() {
  return SubordinateIds("1000:100000:10\n", [](const std::string&) { return std::nullopt; });
}

class TurnsTest : public ::testing::Test {
 protected:
  ~TurnsTest() override {
    for (std::thread& thread : threads_) thread.join();
  }

  // A thread of the user waits for a turn, notes it, and ends it at once. Returns when the thread waits.
  void Queue(Turns::User user, const std::string& name) {
    threads_.emplace_back([this, user, name, deadline = Now() + ++queued_ * absl::Hours(1)] {
      const Turns::Turn turn = turns_.Wait(user, deadline);
      absl::MutexLock lock(&mutex_);
      served_.push_back(name);
    });
    clock_.AwaitWaiter(queued_ * absl::Hours(1));
  }
  std::vector<std::string> Served(size_t number) {
    absl::MutexLock lock(&mutex_);
    const auto is_served = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return served_.size() == number; };
    mutex_.Await(absl::Condition(&is_served));
    return served_;
  }

  FakeClock clock_;
  Turns turns_{Ids()};
  int queued_ = 0;
  absl::Mutex mutex_;
  std::vector<std::string> served_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

TEST_F(TurnsTest, AnotherUserWaitsForOneTurn) {
  Turns::Turn turn = turns_.Wait(kGreedy, Now());
  ASSERT_THAT(turn, NotNull());
  Queue(kGreedy, "greedy 1");
  Queue(kSubordinate, "greedy 2");
  Queue(kOther, "other 1");
  Queue(kOther, "other 2");
  Queue(std::nullopt, "unknown");
  turn = nullptr;
  EXPECT_THAT(Served(5), ElementsAre("other 1", "unknown", "greedy 1", "other 2", "greedy 2"));
}

TEST_F(TurnsTest, WhoWaitsTooLongHasNoTurn) {
  Turns::Turn turn = turns_.Wait(kGreedy, Now());
  EXPECT_THAT(turns_.Wait(kOther, Now()), IsNull());
  turn = nullptr;
  EXPECT_THAT(turns_.Wait(kOther, Now()), NotNull()) << "the thread that has gone gets no turn";
}

}  // namespace
}  // namespace heaptap::base
