// SPDX-License-Identifier: Apache-2.0
//
// What clients ask a system-wide recording, and what triggers cost its users.
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/controlled_child.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/answered.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/process/handle.h"
#include "userspace/profiles/profile_plan.h"
#include "userspace/recording/queries.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What the source says: of each user's account, and between two triggered dumps.
constexpr absl::Duration kBurst = absl::Milliseconds(100);
constexpr absl::Duration kTriggerPause = absl::Seconds(1);
constexpr absl::Duration kInstant = absl::Milliseconds(1);

class QueriesTest : public RecorderTest {
 protected:
  QueriesTest() {
    RecorderOptions options = EveryProcess();
    options.policy.dump_at_exit = DumpAtExit::kNever;
    Start(options);
    other_ = Enter(kOther);
  }
  ~QueriesTest() override { recorder_ = nullptr; }

  // A process with a sample.
  profile::ProcessRef Enter(pid_t pid) {
    const uint64_t process_id = kernel_.Enter(pid, "other");
    kernel_.Sample(process_id, kBytes);
    recorder_->Pump();
    return {pid, process_id};
  }
  // A process whose control block the collector knows.
  profile::ProcessRef Enter(const ControlledChild& child) {
    const profile::ProcessRef process = Enter(child.pid());
    heaptap_event start =
        kernel_.MakeEvent(HEAPTAP_EVENT_START, child.pid(), process.process_id, "child", ControlledChild::address());
    const heaptap_control block = child.Read();
    memcpy(start.memory, &block, sizeof(block));
    kernel_.Send(start);
    recorder_->Pump();
    return process;
  }
  Queries& queries() { return recorder_->queries(); }
  // In this recording the answers come at once.
  absl::StatusOr<ProfilePlan> Plan(const profile::ProcessRef& process) {
    absl::StatusOr<ProfilePlan> planned = absl::UnknownError("no answer");
    queries().Plan(process, [&](absl::StatusOr<ProfilePlan> plan) { planned = std::move(plan); });
    return planned;
  }
  absl::StatusOr<profile::Snapshot> Finish(const ProfilePlan& plan, const BuiltProfile& built) {
    absl::StatusOr<profile::Snapshot> finished = absl::UnknownError("no answer");
    queries().Finish(plan, std::make_shared<BuiltProfile>(built), {},
                     [&](absl::StatusOr<profile::Snapshot> snapshot) { finished = std::move(snapshot); });
    return finished;
  }
  absl::StatusOr<BuiltProfile> Build(const profile::ProcessRef& process) {
    const absl::StatusOr<ProfilePlan> plan = Plan(process);
    if (!plan.ok()) return plan.status();
    return BuildPlanned(recorder_->entries(), *plan);
  }
  absl::Status SetActive(const profile::ProcessRef& process, bool active) {
    return Answered<absl::Status>([&](auto done) { queries().SetActive(process, active, done); });
  }
  absl::Status SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) {
    return Answered<absl::Status>([&](auto done) { queries().SetRate(process, lg_sample, done); });
  }
  absl::StatusOr<profile::AllocatorFigures> ReadAllocatorFigures(const profile::ProcessRef& process) {
    return Answered<absl::StatusOr<profile::AllocatorFigures>>(
        [&](auto done) { queries().ReadAllocatorFigures(process, done); });
  }
  void Trigger(heaptap_event_kind kind) {
    kernel_.Send(kernel_.MakeEvent(kind, other_.pid, other_.process_id, "other"));
    recorder_->Pump();
  }

  FakeClock clock_;
  profile::ProcessRef other_;
};

TEST_F(QueriesTest, AProfile) {
  const absl::StatusOr<ProfilePlan> plan = Plan(other_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  absl::StatusOr<BuiltProfile> built = BuildPlanned(recorder_->entries(), *plan);
  ASSERT_TRUE(built.ok()) << built.status();
  const absl::StatusOr<profile::Snapshot> snapshot = Finish(*plan, *built);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->profile.Live().bytes, 1.0 * kBytes);
  EXPECT_EQ(snapshot->process_id, other_.process_id);
  EXPECT_EQ(snapshot->time, clock_.WallNow());
}

TEST_F(QueriesTest, AProcessThatEndsWhileItsProfileIsMade) {
  const absl::StatusOr<ProfilePlan> plan = Plan(other_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  absl::StatusOr<BuiltProfile> built = BuildPlanned(recorder_->entries(), *plan);
  ASSERT_TRUE(built.ok()) << built.status();
  kernel_.Exit(kOther, "other");
  // Before the recorder knows of the end, and afterwards.
  EXPECT_TRUE(absl::IsNotFound(Finish(*plan, *built).status()));
  recorder_->Pump();
  EXPECT_TRUE(absl::IsNotFound(Finish(*plan, *built).status()));
  EXPECT_TRUE(absl::IsNotFound(Plan(other_).status()));
  EXPECT_TRUE(absl::IsNotFound(queries().DumpOne(other_)));
}

TEST_F(QueriesTest, AnotherProcessWithItsPid) {
  const profile::ProcessRef before = other_;
  kernel_.Exit(kOther, "other");
  const profile::ProcessRef after = Enter(kOther);
  EXPECT_TRUE(absl::IsNotFound(Plan(before).status()));
  EXPECT_TRUE(absl::IsNotFound(Plan({before.pid + 1, after.process_id}).status()));
  EXPECT_TRUE(Plan(after).ok());
  EXPECT_EQ(queries().FindProcess(kOther)->process_id, after.process_id);
}

// Dozens of processes with hundreds of call paths each.
TEST_F(QueriesTest, SummariesHaveTheResidentMemory) {
  const ControlledChild child;
  const profile::ProcessRef process = Enter(child);
  EXPECT_EQ(queries().PlanSummaries(), std::nullopt);
  const std::vector<profile::ProcessSummary> summaries =
      queries().MakeSummaries({{process.process_id, {}}, {other_.process_id, {}}}, absl::ZeroDuration());
  std::map<pid_t, std::optional<int64_t>> resident;
  for (const profile::ProcessSummary& summary : summaries) resident[summary.pid] = summary.resident_bytes;
  EXPECT_GT(resident[process.pid].value_or(0), 100 << 10);
  EXPECT_EQ(resident[other_.pid], std::nullopt) << "no such process";
}

// Its user would be told that there is no such process.
TEST_F(QueriesTest, AProcessIsListedWhenItsOwnerIsKnown) {
  const auto is_listed = [&](uint64_t process_id) {
    const auto summaries = queries().MakeSummaries({{process_id, {}}}, absl::ZeroDuration());
    return std::ranges::count(summaries, process_id, &profile::ProcessSummary::process_id) == 1;
  };
  const ControlledChild child;
  EXPECT_TRUE(is_listed(Enter(child).process_id));
  // One that cannot be read is listed later: to root.
  EXPECT_FALSE(is_listed(other_.process_id));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(is_listed(other_.process_id));
}

TEST_F(QueriesTest, AClientFindsAProcessWhenItsOwnerIsKnown) {
  const ControlledChild child;
  const profile::ProcessRef process = Enter(child);
  const absl::StatusOr<profile::NamedProcess> found = queries().Find(process.pid, base::Now());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->ref(), process);
  EXPECT_EQ(found->owner, getuid());
  // An owner that was read too early is read again.
  const base::Instant later = base::Now() + Readings::kRoundPause + kInstant;
  EXPECT_TRUE(absl::IsResourceExhausted(queries().Find(process.pid, later).status()));
  clock_.Advance(Readings::kRoundPause);
  EXPECT_TRUE(queries().Find(process.pid, later).ok());
  // One that gives no facts is root's.
  const absl::StatusOr<profile::NamedProcess> other = queries().Find(kOther, base::Now());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->owner, std::nullopt);
  kernel_.Exit(kOther, "other");
  EXPECT_TRUE(absl::IsNotFound(queries().Find(kOther, base::Now()).status()));
  EXPECT_TRUE(absl::IsNotFound(queries().Find(kOther + 1, base::Now()).status()));
}

TEST_F(QueriesTest, DearSummariesStayForATime) {
  EXPECT_EQ(queries().PlanSummaries(), std::nullopt);
  EXPECT_THAT(queries().MakeSummaries({}, absl::Milliseconds(9)), IsEmpty());
  ASSERT_TRUE(queries().PlanSummaries().has_value());
  recorder_->Pump();
  EXPECT_EQ(queries().PlanSummaries(), std::nullopt) << "cheap ones are made anew";
  queries().MakeSummaries({}, absl::Milliseconds(100));
  clock_.Advance(absl::Seconds(1));
  recorder_->Pump();
  EXPECT_TRUE(queries().PlanSummaries().has_value());
  clock_.Advance(kInstant);
  recorder_->Pump();
  EXPECT_EQ(queries().PlanSummaries(), std::nullopt);
}

TEST_F(QueriesTest, SummariesOfThoseThatRun) {
  const profile::ProcessRef child = Enter(kChild);
  const absl::Time begin = clock_.WallNow();
  absl::flat_hash_map<uint64_t, TallySums> sums = *SumAllTallies(recorder_->entries());
  kernel_.Exit(kOther, "other");
  recorder_->Pump();
  clock_.Advance(absl::Seconds(1));
  const std::vector<profile::ProcessSummary> summaries = queries().MakeSummaries(sums, {});
  ASSERT_THAT(summaries, SizeIs(1));
  EXPECT_EQ(summaries[0].process_id, child.process_id);
  EXPECT_EQ(summaries[0].live_bytes, 1.0 * kBytes);
  EXPECT_EQ(summaries[0].recorded_since, begin);
}

TEST_F(QueriesTest, TheLargestProcess) {
  const profile::ProcessRef child = Enter(kChild);
  const auto set = [&](const profile::ProcessRef& process, int64_t weight) {
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.at(process.process_id).process.figures.live_weight = weight;
  };
  set(other_, 10);
  set(child, 20);
  EXPECT_EQ(queries().LargestProcess()->process_id, child.process_id);
  // A free that races with its allocation.
  set(child, -1);
  EXPECT_EQ(queries().LargestProcess()->process_id, other_.process_id);
}

TEST_F(QueriesTest, WithoutAControlBlockNothingCanBeSet) {
  EXPECT_TRUE(absl::IsFailedPrecondition(SetActive(other_, false)));
  EXPECT_TRUE(absl::IsFailedPrecondition(SetRate(other_, 12)));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadAllocatorFigures(other_).status()));
}

TEST_F(QueriesTest, WhatIsSetIsInTheControlBlock) {
  const ControlledChild child;
  const profile::ProcessRef process = Enter(child);
  ASSERT_TRUE(SetRate(process, 12).ok());
  EXPECT_EQ(child.Read().collector_lg_sample, 12u);
  ASSERT_TRUE(SetActive(process, true).ok());
  EXPECT_EQ(child.Read().active, 1u);
  EXPECT_EQ(ReadAllocatorFigures(process)->lg_sample, 12u);
  ASSERT_TRUE(SetRate(process, std::nullopt).ok());
  EXPECT_EQ(child.Read().collector_lg_sample, HEAPTAP_NO_RATE);
  EXPECT_EQ(ReadAllocatorFigures(process)->lg_sample, 17u);
}

// The errors of the figures are those of the rate that the process has.
TEST_F(QueriesTest, ARateThatCannotBeWrittenIsAnError) {
  const ControlledChild child;
  const profile::ProcessRef process = Enter(child);
  ASSERT_TRUE(SetRate(process, 12).ok());
  const absl::StatusOr<process::Handle> handle = process::Handle::Open(child.pid());
  ASSERT_TRUE(handle.ok()) << handle.status();
  const uint64_t magic_address = ControlledChild::address() + offsetof(heaptap_control, magic);
  const auto write_magic = [&](decltype(heaptap_control::magic) magic) {
    return handle->Write(magic_address, &magic, sizeof(magic));
  };
  ASSERT_TRUE(write_magic(~HEAPTAP_CONTROL_MAGIC).ok());
  EXPECT_FALSE(SetRate(process, 20).ok());
  ASSERT_TRUE(write_magic(HEAPTAP_CONTROL_MAGIC).ok());
  EXPECT_EQ(child.Read().collector_lg_sample, 12u);
  EXPECT_EQ(ReadAllocatorFigures(process)->lg_sample, 12u);
}

// A process may cause triggers without end; one later dump covers them all.
TEST_F(QueriesTest, TriggersWithinASecondAreOneLaterDump) {
  Trigger(HEAPTAP_EVENT_HIGH_WATER);
  EXPECT_THAT(Dumps(kOther), ElementsAre(Text(1, kBytes)));
  Trigger(HEAPTAP_EVENT_HIGH_WATER);
  Trigger(HEAPTAP_EVENT_INTERVAL);
  clock_.Advance(kTriggerPause - kInstant);
  recorder_->everyone().Tick(base::Now());
  EXPECT_THAT(Dumps(kOther), SizeIs(1));
  clock_.Advance(kInstant);
  recorder_->everyone().Tick(base::Now());
  EXPECT_THAT(Dumps(kOther), SizeIs(2));
  clock_.Advance(kTriggerPause);
  recorder_->everyone().Tick(base::Now());
  EXPECT_THAT(Dumps(kOther), SizeIs(2)) << "what was postponed is done once";
}

TEST_F(QueriesTest, ATriggerOfAUserWithoutTimeIsPostponed) {
  // The first dump uses up the account until the next trigger.
  kernel_.on_step = [this](const std::string& step) {
    if (step == "ReadStack") clock_.Advance(2 * kBurst);
  };
  Trigger(HEAPTAP_EVENT_HIGH_WATER);
  kernel_.on_step = {};
  EXPECT_THAT(Dumps(kOther), SizeIs(1));
  clock_.Advance(kTriggerPause);
  Trigger(HEAPTAP_EVENT_HIGH_WATER);
  EXPECT_THAT(Dumps(kOther), SizeIs(1));
  clock_.Advance(kInstant);
  recorder_->everyone().Tick(base::Now());
  EXPECT_THAT(Dumps(kOther), SizeIs(2));
}

}  // namespace
}  // namespace heaptap::recording
