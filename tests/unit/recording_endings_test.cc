// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/clock.h"
#include "userspace/recording/endings.h"
#include "userspace/targets/rules.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// As in wait(2).
constexpr uint32_t kExitedWithError = 1 << 8;

class EndingsTest : public RecorderTest {
 protected:
  ~EndingsTest() override { recorder_ = nullptr; }

  void StartWith(DumpAtExit dump_at_exit) {
    RecorderOptions options = EveryProcess();
    options.policy.dump_at_exit = dump_at_exit;
    Start(options);
  }
  // A process with a sample.
  uint64_t Enter(pid_t pid) {
    const uint64_t process_id = kernel_.Enter(pid, "other");
    kernel_.Sample(process_id, kBytes);
    recorder_->Pump();
    return process_id;
  }
  // Later than ends that share one reading.
  void PumpLater() {
    clock_.Advance(absl::Seconds(1));
    recorder_->Pump();
  }

  FakeClock clock_;
};

TEST_F(EndingsTest, AnEndIsRememberedWithItsCauseWhoeverTellsIt) {
  StartWith(DumpAtExit::kNever);
  for (const bool is_seen : {true, false}) {
    for (const bool by_oom_kill : {true, false}) {
      SCOPED_TRACE(is_seen ? "by an event" : "from the books");
      const uint64_t process_id = Enter(kOther);
      kernel_.loses_events = !is_seen;
      kernel_.Exit(kOther, "other", SIGKILL, by_oom_kill);
      kernel_.loses_events = false;
      PumpLater();
      const profile::EndedProcess& ended = recorder_->endings().ended().front();
      EXPECT_EQ(ended.summary.process_id, process_id);
      EXPECT_EQ(ended.status, SIGKILL);
      EXPECT_EQ(ended.by_oom_kill, by_oom_kill);
      EXPECT_EQ(ended.ended, clock_.WallNow());
    }
  }
}

TEST_F(EndingsTest, ThePeakIsThatOfTheKernel) {
  StartWith(DumpAtExit::kNever);
  const uint64_t process_id = Enter(kOther);
  kernel_.loses_events = true;
  kernel_.Exit(kOther, "other");
  kernel_.unnoticed.at(process_id).peak_weight = 7 * kBytes;
  PumpLater();
  ASSERT_THAT(recorder_->endings().ended(), SizeIs(1));
  EXPECT_EQ(recorder_->endings().ended().front().summary.peak_bytes, 7.0 * kBytes);
  EXPECT_EQ(recorder_->endings().ended().front().summary.live_bytes, 1.0 * kBytes);
}

// It ends before the new collector has looked at it.
TEST_F(EndingsTest, AProcessOfAnEarlierCollectorHasItsName) {
  const uint64_t process_id = kernel_.Enter(kOther, "other");
  kernel_.Sample(process_id, kBytes);
  Start(EveryProcess(), true);
  ASSERT_TRUE(recorder_->IsRecorded(kOther));
  kernel_.Exit(kOther, "other");
  PumpLater();
  ASSERT_THAT(recorder_->endings().ended(), SizeIs(1));
  EXPECT_EQ(recorder_->endings().ended().front().summary.command, "other");
}

// The default says nothing of these processes, which ended while no collector ran.
TEST_F(EndingsTest, RulesHoldForThoseThatNobodyLookedAt) {
  kernel_.loses_events = true;
  for (const auto& [pid, name] :
       {std::pair(kParent, "always"), std::pair(kChild, "ignored"), std::pair(kOther, "other")}) {
    kernel_.Sample(kernel_.Enter(pid, name), kBytes);
    kernel_.Exit(pid, name);
  }
  RecorderOptions options = EveryProcess();
  options.policy.dump_at_exit = DumpAtExit::kNever;
  options.system_wide->rules =
      Rules::Parse({"comm=always dump-at-exit=always", "comm=ignored record=off"}, options.policy).value();
  Start(options, true);
  PumpLater();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, kBytes)));
  EXPECT_THAT(Dumps(kChild), IsEmpty());
  EXPECT_THAT(Dumps(kOther), IsEmpty());
  std::vector<std::string> names;
  for (const profile::EndedProcess& ended : recorder_->endings().ended()) names.push_back(ended.summary.command);
  EXPECT_THAT(names, UnorderedElementsAre("always", "other"));
}

// A rule that tests the control group, too: an earlier collector has saved what it knew.
TEST_F(EndingsTest, RulesHoldForWhatAnEarlierCollectorKnew) {
  const Child child;
  RecorderOptions options = EveryProcess();
  options.policy.dump_at_exit = DumpAtExit::kNever;
  options.system_wide->rules =
      Rules::Parse({absl::StrCat("user=", getuid(), " cgroup=/* dump-at-exit=always")}, options.policy).value();
  Start(options);
  const uint64_t process_id = kernel_.Enter(child.pid(), "child");
  kernel_.Sample(process_id, kBytes);
  while (!recorder_->queries().Find(child.pid(), base::Now()).ok()) recorder_->Pump();
  recorder_->Leave();
  recorder_ = nullptr;
  kernel_.loses_events = true;
  kernel_.Exit(child.pid(), "child");
  Start(options, true);
  PumpLater();
  EXPECT_THAT(Dumps(child.pid()), ElementsAre(Text(1, kBytes)));
}

TEST_F(EndingsTest, AProcessWhoseBeginningWasLostHasItsName) {
  StartWith(DumpAtExit::kNever);
  kernel_.loses_events = true;
  const uint64_t process_id = kernel_.Enter(kOther, "other");
  kernel_.Sample(process_id, kBytes);
  recorder_->Pump();
  ASSERT_TRUE(recorder_->IsRecorded(kOther));
  kernel_.loses_events = false;
  kernel_.Exit(kOther, "other");
  PumpLater();
  ASSERT_THAT(recorder_->endings().ended(), SizeIs(1));
  EXPECT_EQ(recorder_->endings().ended().front().summary.command, "other");
}

TEST_F(EndingsTest, LastDumpsOfThoseThatASignalEnded) {
  StartWith(DumpAtExit::kFatal);
  Enter(kOther);
  kernel_.Exit(kOther, "other", kExitedWithError);
  PumpLater();
  EXPECT_THAT(Dumps(kOther), IsEmpty());
  Enter(kOther);
  kernel_.Exit(kOther, "other", SIGSEGV);
  PumpLater();
  EXPECT_THAT(Dumps(kOther), ElementsAre(Text(1, kBytes)));
}

// An earlier collector has seen neither its beginning nor its end.
TEST_F(EndingsTest, AnUnknownEndCountsAsFatal) {
  kernel_.Sample(42, kBytes);
  RecorderOptions options = EveryProcess();
  options.policy.dump_at_exit = DumpAtExit::kFatal;
  Start(options, true);
  PumpLater();
  EXPECT_THAT(Dumps(0), ElementsAre(Text(1, kBytes)));
}

TEST_F(EndingsTest, EndsWithinATenthOfASecondShareAReading) {
  StartWith(DumpAtExit::kNever);
  Enter(kOther);
  Enter(kChild);
  PumpLater();
  kernel_.Exit(kOther, "other");
  recorder_->Pump();
  EXPECT_FALSE(recorder_->IsRecorded(kOther));
  kernel_.Exit(kChild, "child");
  clock_.Advance(absl::Milliseconds(99));
  recorder_->Pump();
  EXPECT_TRUE(recorder_->IsRecorded(kChild));
  clock_.Advance(absl::Milliseconds(1));
  recorder_->Pump();
  EXPECT_FALSE(recorder_->IsRecorded(kChild));
}

// The event may be on its way at the first look.
TEST_F(EndingsTest, WhoIsMissingTwiceHasEnded) {
  StartWith(DumpAtExit::kNever);
  const uint64_t process_id = Enter(kOther);
  {
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.erase(process_id);
  }
  recorder_->everyone().Tick(base::Now());
  PumpLater();
  EXPECT_TRUE(recorder_->IsRecorded(kOther));
  recorder_->everyone().Tick(base::Now());
  PumpLater();
  EXPECT_FALSE(recorder_->IsRecorded(kOther));
}

TEST_F(EndingsTest, TheLatestThousandAreRemembered) {
  constexpr size_t kMost = 1000;
  StartWith(DumpAtExit::kNever);
  uint64_t process_id = 0;
  for (size_t i = 0; i < kMost + 2; i++) {
    process_id = kernel_.Enter(kOther, "other");
    kernel_.Sample(process_id, kBytes);
    kernel_.Exit(kOther, "other");
  }
  // Each call closes a part of them.
  for (int i = 0; i < 10; i++) PumpLater();
  EXPECT_THAT(recorder_->endings().ended(), SizeIs(kMost));
  EXPECT_EQ(recorder_->endings().ended().front().summary.process_id, process_id);
}

}  // namespace
}  // namespace heaptap::recording
