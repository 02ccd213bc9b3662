// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/targets/user_queues.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// In these tests a PID is also the process, and its thousands are its user.
constexpr pid_t kThousand = 1000;

class UserQueuesTest : public ::testing::Test {
 protected:
  void Add(pid_t pid) { queues_.Add(pid, static_cast<uint64_t>(pid)); }
  // The processes that one call serves.
  std::vector<uint64_t> Serve() {
    std::vector<uint64_t> served;
    queues_.Serve([&](uid_t user, uint64_t process) {
      served.push_back(process);
      if (rooms_.contains(user)) rooms_[user]--;
    });
    return served;
  }

  std::map<uid_t, int> rooms_;    // of the users that have few
  std::map<pid_t, uid_t> users_;  // of processes that have changed theirs
  int asked_ = 0;
  UserQueues queues_{[this](pid_t pid) {
                       asked_++;
                       return users_.contains(pid) ? users_[pid] : static_cast<uid_t>(pid / kThousand);
                     },
                     [this](uid_t user) { return !rooms_.contains(user) || rooms_[user] > 0; }};
};

TEST_F(UserQueuesTest, EachIsServedOnce) {
  for (const pid_t pid : {1, 1, 2}) Add(pid);
  queues_.Forget(2);
  queues_.Forget(3);
  EXPECT_THAT(Serve(), ElementsAre(1));
  EXPECT_TRUE(queues_.empty());
  EXPECT_THAT(Serve(), IsEmpty());
}

TEST_F(UserQueuesTest, WhoHasNoRoomWaitsAndOthersDoNot) {
  for (const pid_t pid : {3, 2, 1, 1001}) Add(pid);
  rooms_[0] = 1;
  EXPECT_THAT(Serve(), ElementsAre(1001, 3));
  EXPECT_THAT(Serve(), IsEmpty());
  Add(3);
  rooms_.clear();
  EXPECT_THAT(Serve(), ElementsAre(2, 1, 3)) << "who comes again comes after those who have waited";
}

TEST_F(UserQueuesTest, WhoWaitsCostsNothing) {
  for (pid_t pid = 1; pid < kThousand; pid++) Add(pid);
  rooms_[0] = 0;
  asked_ = 0;
  EXPECT_THAT(Serve(), IsEmpty());
  EXPECT_EQ(asked_, 0);
}

TEST_F(UserQueuesTest, ACallIsBoundedAndTheNextOneGoesOnWithTheOtherUsers) {
  constexpr pid_t kUsers = UserQueues::kMaxAtOnce / UserQueues::kMaxOfUser + 1;
  std::vector<uint64_t> first;
  for (pid_t user = 1; user <= kUsers; user++) {
    for (size_t i = 0; i <= UserQueues::kMaxOfUser; i++) {
      const pid_t pid = user * kThousand + static_cast<pid_t>(i);
      Add(pid);
      if (user < kUsers && i < UserQueues::kMaxOfUser) first.push_back(static_cast<uint64_t>(pid));
    }
  }
  EXPECT_THAT(Serve(), ElementsAreArray(first));
  EXPECT_EQ(Serve().front(), static_cast<uint64_t>(kUsers * kThousand));
}

TEST_F(UserQueuesTest, AProcessThatHasChangedItsUserWaitsWithTheOtherOnes) {
  for (const pid_t pid : {1, 2, 1001}) Add(pid);
  users_[1] = 1;
  rooms_[1] = 0;
  EXPECT_THAT(Serve(), ElementsAre(2));
  rooms_.clear();
  EXPECT_THAT(Serve(), ElementsAre(1001, 1));
}

TEST_F(UserQueuesTest, MayChangeWhileItServes) {
  for (const pid_t pid : {1, 2, 3}) Add(pid);
  std::vector<uint64_t> served;
  queues_.Serve([&](uid_t, uint64_t process) {
    served.push_back(process);
    if (process == 1) queues_.Forget(2);
    if (process == 3 && served.size() == 2) Add(3);
  });
  EXPECT_THAT(served, ElementsAre(1, 3, 3));
  EXPECT_TRUE(queues_.empty());
}

}  // namespace
}  // namespace heaptap::recording
