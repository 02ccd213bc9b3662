// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/simulated_books.h"
#include "userspace/base/clock.h"
#include "userspace/dumps/profile_orders.h"
#include "userspace/process/handle.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr uint32_t kEndedThread = 5'000'100;

class ProfileOrdersTest : public ::testing::Test {
 protected:
  ProfileOrdersTest() { target_ = Enter(child_); }
  ~ProfileOrdersTest() override { LetLook(); }

  Target Enter(const Child& child) {
    Target target;
    target.pid = child.pid();
    target.process_id = kernel_.Enter(child.pid(), "child");
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.at(target.process_id).process.pending = reinterpret_cast<uint64_t>(&pending);
    return target;
  }
  // Orders wait until LetLook. Root may have two under way.
  void Stall() {
    for (int i = 0; i < 2; i++) {
      looks_.Start(
          getpid(), [this](worker::Hands&, int) { may_look_.WaitForNotification(); }, [] {});
    }
  }
  void FillUp() {
    while (looks_.HasRoom(getpid()))
      looks_.Start(
          getpid(), [](worker::Hands&, int) {}, [] {});
  }
  void LetLook() {
    if (!may_look_.HasBeenNotified()) may_look_.Notify();
  }
  bool Await(const bool& is_done) {
    return looks_.WaitUntil([&] { return is_done; }, base::Now() + absl::Minutes(1));
  }
  std::shared_ptr<profile::Profile> ProfileOf(uint32_t tid) {
    auto profile = std::make_shared<profile::Profile>();
    profile->thread_names = {{tid, ""}, {kEndedThread, ""}};
    kernel_.names[{target_.process_id, kEndedThread}] = {.name = "ended", .given = false};
    return profile;
  }

  // The same in the children.
  static inline heaptap_pending pending = [] {
    heaptap_pending one = {};
    one.used = 1;
    one.slots[0] = {.count = 1, .reserved = 0, .weight = 0, .frees = {{.address = 0x10, .serial = 1}}};
    return one;
  }();
  const Child child_;
  bpf::SimulatedKernel kernel_;
  std::unique_ptr<bpf::Books> books_ = bpf::MakeSimulatedBooks(kernel_, false);
  absl::Notification may_look_;
  worker::Looks looks_{-1, {}, {.patience = absl::Minutes(1)}, 10};
  ProfileOrders orders_{books_->entries(), books_->processes(), looks_};
  Target target_;
};

TEST_F(ProfileOrdersTest, FreesThatAProcessHoldsBack) {
  bool is_done = false;
  orders_.TakeFrees(target_, [&] { is_done = true; });
  EXPECT_FALSE(is_done);
  ASSERT_TRUE(Await(is_done));
  EXPECT_THAT(kernel_.frees_taken[target_.process_id], SizeIs(1));
}

TEST_F(ProfileOrdersTest, WhoHasEndedOrHoldsNothingBackIsNotAsked) {
  Stall();
  bool is_done = false;
  target_.ending.emplace();
  orders_.TakeFrees(target_, [&] { is_done = true; });
  EXPECT_TRUE(is_done);
  target_.ending.reset();
  is_done = false;
  {
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.at(target_.process_id).process.pending = 0;
  }
  orders_.TakeFrees(target_, [&] { is_done = true; });
  EXPECT_TRUE(is_done);
}

TEST_F(ProfileOrdersTest, FreesOfAllProcessesInOneOrder) {
  const Child other;
  TargetTable targets;
  for (const Target& target : {target_, Enter(other)}) targets.Add(target.process_id, target.pid, {});
  Stall();
  const std::shared_ptr<const size_t> under_way = orders_.TakeAllFrees(targets);
  EXPECT_EQ(*under_way, 1u);
  LetLook();
  ASSERT_TRUE(looks_.WaitUntil([&] { return *under_way == 0; }, base::Now() + absl::Minutes(1)));
  EXPECT_THAT(kernel_.frees_taken, SizeIs(2));
}

TEST_F(ProfileOrdersTest, ThreadsThatLiveHaveTheirNames) {
  const auto tid = static_cast<uint32_t>(child_.pid());
  const std::shared_ptr<profile::Profile> profile = ProfileOf(tid);
  bool is_done = false;
  orders_.NameThreads(target_, profile, [&] { is_done = true; });
  ASSERT_TRUE(Await(is_done));
  EXPECT_THAT(profile->thread_names,
              ElementsAre(Pair(tid, process::NameOf(child_.pid())), Pair(kEndedThread, "ended")));
}

// The names are those of another process, which has the PID by now.
TEST_F(ProfileOrdersTest, ThreadsOfAnotherProcessWithItsPidDoNotCount) {
  const auto tid = static_cast<uint32_t>(child_.pid());
  const std::shared_ptr<profile::Profile> profile = ProfileOf(tid);
  Stall();
  bool is_done = false;
  orders_.NameThreads(target_, profile, [&] { is_done = true; });
  kernel_.Exit(child_.pid(), "child");
  LetLook();
  ASSERT_TRUE(Await(is_done));
  EXPECT_THAT(profile->thread_names, ElementsAre(Pair(tid, "child"), Pair(kEndedThread, "ended"))) << "as at its end";
}

TEST_F(ProfileOrdersTest, WithoutRoomAProfileIsMadeWithout) {
  Stall();
  FillUp();
  bool is_done = false;
  orders_.TakeFrees(target_, [&] { is_done = true; });
  EXPECT_TRUE(is_done);
  EXPECT_THAT(kernel_.frees_taken, IsEmpty());
  const auto tid = static_cast<uint32_t>(child_.pid());
  const std::shared_ptr<profile::Profile> profile = ProfileOf(tid);
  is_done = false;
  orders_.NameThreads(target_, profile, [&] { is_done = true; });
  EXPECT_TRUE(is_done);
  EXPECT_THAT(profile->thread_names, ElementsAre(Pair(tid, ""), Pair(kEndedThread, "ended")));
}

TEST_F(ProfileOrdersTest, RecordsOfSamples) {
  heaptap_record record = {};
  record.tid = static_cast<uint32_t>(child_.pid());
  record.size = 100;
  kernel_.records[target_.process_id] = {record};
  const ProfilePlan plan = {
      .process = {target_.pid, target_.process_id},
      .space = nullptr,
      .subject = {
          .pid = target_.pid, .process_id = target_.process_id, .lg_sample = 10, .allocator = {}, .space = nullptr}};
  std::vector<std::string> names;
  std::optional<absl::Status> done;
  orders_.MakeRecords(
      plan, 10,
      [&](const profile::SampleRecords& records) {
        for (const profile::SampleRecord& one : records.samples) names.push_back(one.allocation.thread_name);
      },
      [&](const absl::Status& status, absl::Duration cost) {
        EXPECT_GT(cost, absl::ZeroDuration());
        done = status;
      });
  EXPECT_EQ(done, std::nullopt);
  ASSERT_TRUE(looks_.WaitUntil([&] { return done.has_value(); }, base::Now() + absl::Minutes(1)));
  EXPECT_TRUE(done->ok()) << *done;
  EXPECT_THAT(names, ElementsAre(process::NameOf(child_.pid())));
}

}  // namespace
}  // namespace heaptap::recording
