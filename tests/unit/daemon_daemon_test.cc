// SPDX-License-Identifier: Apache-2.0
//
// Clients of a daemon whose kernel is simulated: who waits for whom.
#include "userspace/daemon/daemon.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/api/client_time.h"
#include "userspace/base/user_ids.h"

namespace heaptap::daemon {
namespace {

using ::testing::SizeIs;

constexpr uid_t kUser = 1234;

class DaemonTest : public recording::RecorderTest {
 protected:
  DaemonTest() {
    RecorderTest::Start(EveryProcess());
    process_ = {recording::kOther, kernel_.Enter(recording::kOther, "other")};
    kernel_.Sample(process_.process_id, recording::kBytes);
    absl::StatusOr<std::unique_ptr<Daemon>> daemon =
        Daemon::Start(std::move(recorder_), false, {.socket_path = folder_ / "socket"}, {});
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    daemon_->Work();
  }
  ~DaemonTest() override {
    Stop();
    daemon_ = nullptr;
  }

  // The recording's thread works from now on, whenever a client asks.
  void Work() {
    is_working_ = true;
    recording_ = std::thread([this] {
      while (is_working_) daemon_->Work();
    });
  }
  void Stop() {
    is_working_ = false;
    if (recording_.joinable()) recording_.join();
  }

  FakeClock clock_;
  api::ClientTime time_;
  profile::ProcessRef process_;
  std::unique_ptr<Daemon> daemon_;
  std::atomic<bool> is_working_ = false;
  std::thread recording_;
};

TEST_F(DaemonTest, TheListDoesNotWaitForAProfile) {
  absl::Notification is_made;
  absl::Notification may_go_on;
  kernel_.on_step = [&](const std::string& step) {
    if (step != "ReadTallies" || is_made.HasBeenNotified()) return;
    is_made.Notify();
    may_go_on.WaitForNotification();
  };
  Work();
  std::thread user([&] {
    api::Asker asker(time_, kUser);
    EXPECT_TRUE(daemon_->Snapshot(process_, asker).ok());
  });
  is_made.WaitForNotification();
  api::Asker root(time_, base::kRoot);
  const absl::StatusOr<std::vector<profile::ProcessSummary>> processes = daemon_->Processes(root);
  ASSERT_TRUE(processes.ok()) << processes.status();
  EXPECT_THAT(*processes, SizeIs(1));
  may_go_on.Notify();
  user.join();
}

TEST_F(DaemonTest, WhoHasNoTimeIsToldAtOnceAndNobodyWaits) {
  Work();
  api::Asker user(time_, kUser);
  user.Charge(api::ClientTime::kBurst);
  for (const absl::Status& status :
       {daemon_->Snapshot(process_, user).status(), daemon_->DetailedSnapshot(process_, user).status(),
        daemon_->Dump(process_, user).status()}) {
    EXPECT_EQ(api::SecondsToWait(status), 1) << status;
  }
  // It is the same process, but somebody else asks.
  api::Asker other(time_, kUser + 1);
  EXPECT_TRUE(daemon_->Snapshot(process_, other).ok());
}

TEST_F(DaemonTest, WhoAsksPaysForTheProfile) {
  kernel_.on_step = [&](const std::string& step) {
    if (step == "ReadStack") clock_.Advance(api::ClientTime::kBurst), clock_.Work(api::ClientTime::kBurst);
  };
  Work();
  api::Asker user(time_, kUser);
  EXPECT_TRUE(daemon_->Snapshot(process_, user).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(daemon_->Snapshot(process_, user).status()));
}

// While one client sums up the tallies for all, others wait for its sums, but only while it does.
TEST_F(DaemonTest, WhoGivesUpTheSumsLeavesThemToOthers) {
  Work();
  api::Asker user(time_, kUser);
  user.Charge(api::ClientTime::kBurst);
  EXPECT_TRUE(absl::IsResourceExhausted(daemon_->Processes(user).status()));
  api::Asker root(time_, base::kRoot);
  EXPECT_TRUE(daemon_->Processes(root).ok());
}

TEST_F(DaemonTest, HealthAsksNobody) {
  EXPECT_TRUE(daemon_->Health().ok());
  clock_.Advance(Daemon::kPatience - absl::Milliseconds(1));
  EXPECT_TRUE(daemon_->Health().ok());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsUnavailable(daemon_->Health()));
  daemon_->Work();
  EXPECT_TRUE(daemon_->Health().ok());
}

}  // namespace
}  // namespace heaptap::daemon
