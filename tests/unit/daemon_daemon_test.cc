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
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/user_ids.h"
#include "userspace/http/client_time.h"

namespace heaptap::daemon {
namespace {

using ::testing::SizeIs;

constexpr uid_t kUser = 1234;

class DaemonTest : public recording::RecorderTest {
 protected:
  explicit DaemonTest(base::Background::Place background = base::Background::Place::kCaller) {
    recording::RecorderOptions options = EveryProcess();
    options.background = background;
    RecorderTest::Start(options);
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
      recording_id_ = std::this_thread::get_id();
      while (is_working_) daemon_->Work();
    });
  }
  void Stop() {
    is_working_ = false;
    if (recording_.joinable()) recording_.join();
  }

  FakeClock clock_;
  http::ClientTime time_;
  profile::ProcessRef process_;
  std::unique_ptr<Daemon> daemon_;
  std::atomic<bool> is_working_ = false;
  std::thread recording_;
  std::atomic<std::thread::id> recording_id_ = std::this_thread::get_id();
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
    http::Asker asker(time_, kUser);
    EXPECT_TRUE(daemon_->Snapshot(process_, asker).ok());
  });
  is_made.WaitForNotification();
  http::Asker root(time_, base::kRoot);
  const absl::StatusOr<std::vector<profile::ProcessSummary>> processes = daemon_->Processes(root);
  ASSERT_TRUE(processes.ok()) << processes.status();
  EXPECT_THAT(*processes, SizeIs(1));
  may_go_on.Notify();
  user.join();
}

TEST_F(DaemonTest, WhoHasNoTimeIsToldAtOnceAndNobodyWaits) {
  Work();
  http::Asker user(time_, kUser);
  user.Charge(http::ClientTime::kBurst);
  for (const absl::Status& status :
       {daemon_->Snapshot(process_, user).status(), daemon_->DetailedSnapshot(process_, user).status(),
        daemon_->Dump(process_, user).status()}) {
    EXPECT_EQ(http::SecondsToWait(status), 1) << status;
  }
  // It is the same process, but somebody else asks.
  http::Asker other(time_, kUser + 1);
  EXPECT_TRUE(daemon_->Snapshot(process_, other).ok());
}

TEST_F(DaemonTest, WhoAsksPaysForTheProfile) {
  kernel_.on_step = [&](const std::string& step) {
    if (step == "ReadStack") clock_.Advance(http::ClientTime::kBurst), clock_.Work(http::ClientTime::kBurst);
  };
  Work();
  http::Asker user(time_, kUser);
  EXPECT_TRUE(daemon_->Snapshot(process_, user).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(daemon_->Snapshot(process_, user).status()));
}

// While one client sums up the tallies for all, others wait for its sums, but only while it does.
TEST_F(DaemonTest, WhoGivesUpTheSumsLeavesThemToOthers) {
  Work();
  http::Asker user(time_, kUser);
  user.Charge(http::ClientTime::kBurst);
  EXPECT_TRUE(absl::IsResourceExhausted(daemon_->Processes(user).status()));
  http::Asker root(time_, base::kRoot);
  EXPECT_TRUE(daemon_->Processes(root).ok());
}

// The recording has threads of its own, and hands wait for a process.
class LateAnswersTest : public DaemonTest {
 protected:
  LateAnswersTest() : DaemonTest(base::Background::Place::kOwnThread) {
    const uint64_t process_id = kernel_.Enter(child_.pid(), "child");
    kernel_.Sample(process_id, recording::kBytes);
    late_ = {child_.pid(), process_id};
    {
      absl::MutexLock lock(&kernel_.mutex);
      kernel_.processes.at(process_id).process.pending = reinterpret_cast<uint64_t>(&pending);
    }
    // Its facts are read now, and not while it is late.
    do {
      daemon_->Work();
    } while (!daemon_->recorder().queries().Owner(late_, base::Now()).ok());
    kernel_.on_is_current = [this](pid_t pid) {
      if (pid != child_.pid() || std::this_thread::get_id() == recording_id_.load()) return;
      if (!is_late_.HasBeenNotified()) is_late_.Notify();
      end_.WaitForNotification();
    };
  }

  static inline heaptap_pending pending = {};  // the same in the child
  const Child child_;
  profile::ProcessRef late_;
  absl::Notification is_late_;
  absl::Notification end_;
};

TEST_F(LateAnswersTest, OneProcessMakesNobodyElseWait) {
  Work();
  std::thread user([&] {
    http::Asker asker(time_, kUser);
    const absl::StatusOr<profile::Snapshot> snapshot = daemon_->Snapshot(late_, asker);
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ(snapshot->profile.Live().bytes, 1.0 * recording::kBytes);
  });
  is_late_.WaitForNotification();
  http::Asker root(time_, base::kRoot);
  EXPECT_TRUE(daemon_->Snapshot(process_, root).ok());
  end_.Notify();
  user.join();
}

TEST_F(LateAnswersTest, WhoWaitsIsToldThatTheDaemonEnds) {
  Work();
  std::thread user([&] {
    http::Asker asker(time_, kUser);
    EXPECT_TRUE(absl::IsUnavailable(daemon_->Snapshot(late_, asker).status()));
  });
  is_late_.WaitForNotification();
  Stop();
  std::thread end([&] { daemon_ = nullptr; });
  user.join();
  end_.Notify();
  end.join();
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
