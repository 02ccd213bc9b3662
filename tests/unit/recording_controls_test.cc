// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/controlled_child.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/own_hands.h"
#include "tests/unit/support/simulated_books.h"
#include "userspace/process/control_block.h"
#include "userspace/recording/controls.h"

namespace heaptap::recording {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);  // a busy machine may let hands wait for long

using worker::ControlVerb;

constexpr pid_t kNobody = 5'000'001;  // above the kernel's largest PID

class ControlsTest : public ::testing::Test {
 protected:
  Controls Make(bool is_system_wide = true) {
    return {books_->processes(), hands_, {.is_system_wide = is_system_wide, .follow = true}};
  }
  Target TargetOf(pid_t pid) {
    return {.process_id = kernel_.Enter(pid, "child"), .pid = pid, .control_address = ControlledChild::address()};
  }

  bpf::SimulatedKernel kernel_;
  worker::Hands hands_{{}, {.patience = kPatience}};
  std::unique_ptr<bpf::Books> books_ = bpf::MakeSimulatedBooks(kernel_, false);
};

TEST_F(ControlsTest, TakesFactsAndControl) {
  const ControlledChild child([](heaptap_control& block) { block.active = 1; });
  Target target = TargetOf(child.pid());
  target.policy.lg_sample = 12;
  Make().Use(target, child.Read(), ControlledChild::address());
  EXPECT_TRUE(target.started);
  EXPECT_EQ(target.own_lg_sample, 17u);
  EXPECT_EQ(target.max_frames, 99u);
  EXPECT_EQ(target.allocator.begin, 0x1000u);
  EXPECT_EQ(target.active, true);
  EXPECT_EQ(target.allocator_name, "heaptap");
  const heaptap_control block = child.Read();
  EXPECT_EQ(block.collector_pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(block.collector_lg_sample, 12u);
  EXPECT_EQ(block.collector_follows, 1u);
}

TEST_F(ControlsTest, WithoutARequestedRateTheProcessKeepsItsOwn) {
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  Make().Use(target, child.Read(), ControlledChild::address());
  EXPECT_EQ(child.Read().collector_lg_sample, HEAPTAP_NO_RATE);
}

TEST_F(ControlsTest, WhatAnotherCollectorRecordsStaysItsOwn) {
  const Child collector([] { return prctl(PR_SET_NAME, process::kCollectorName) == 0; });
  const auto pid = static_cast<uint32_t>(collector.pid());
  const ControlledChild child([pid](heaptap_control& block) { block.collector_pid = pid; });
  Target target = TargetOf(child.pid());
  Controls controls = Make();
  ::testing::internal::CaptureStderr();
  controls.Use(target, child.Read(), ControlledChild::address());
  controls.Use(target, child.Read(), ControlledChild::address());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_TRUE(target.foreign);
  EXPECT_EQ(target.other_collector, collector.pid());
  EXPECT_EQ(child.Read().collector_pid, pid);
  // Who records one process has asked for it.
  Make(false).Use(target, child.Read(), ControlledChild::address());
  EXPECT_FALSE(target.foreign);
  EXPECT_EQ(child.Read().collector_pid, static_cast<uint32_t>(getpid()));
}

// A killed collector leaves its PID behind.
TEST_F(ControlsTest, ADeadCollectorControlsNothing) {
  const Child other;  // not a collector, but with its PID
  for (const pid_t pid : {kNobody, other.pid()}) {
    const ControlledChild child([pid](heaptap_control& block) { block.collector_pid = pid; });
    Target target = TargetOf(child.pid());
    Make().Use(target, child.Read(), ControlledChild::address());
    EXPECT_FALSE(target.foreign);
    EXPECT_EQ(child.Read().collector_pid, static_cast<uint32_t>(getpid()));
  }
}

TEST_F(ControlsTest, AProcessThatHasEndedIsNotTouched) {
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  target.process_id++;  // the PID has been used again
  EXPECT_TRUE(absl::IsNotFound(Make().Order(target, ControlVerb::kActive, 1).status()));
  EXPECT_EQ(child.Read().active, 0u);
  EXPECT_FALSE(target.was_late);
}

TEST_F(ControlsTest, ReleasesControlOrSaysThatItCannot) {
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  target.policy.lg_sample = 12;
  Controls controls = Make();
  controls.Use(target, child.Read(), ControlledChild::address());
  ::testing::internal::CaptureStderr();
  controls.Release(target);
  EXPECT_EQ(child.Read().collector_pid, 0u);
  EXPECT_EQ(child.Read().collector_lg_sample, HEAPTAP_NO_RATE);
  const Child other;
  Target unmapped = TargetOf(other.pid());
  unmapped.name = "odd";
  unmapped.control_address = 1;
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");

  ::testing::internal::CaptureStderr();
  controls.Release(unmapped);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            absl::StrCat("heaptap: process ", other.pid(),
                         " (odd) still names this collector: cannot read memory of process ", other.pid(),
                         ": Input/output error; the next one takes it over\n"));
  // It has ended.
  unmapped.process_id++;
  ::testing::internal::CaptureStderr();
  controls.Release(unmapped);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  // Any process can have such a block.
  unmapped.process_id--;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; i++) controls.Release(unmapped);
  EXPECT_LT(std::ranges::count(::testing::internal::GetCapturedStderr(), '\n'), 20);
}

// Order has tried it twice. The next try is that of the next second.
TEST_F(ControlsTest, SaysOnceThatAProcessCannotBeToldItsRate) {
  const Child other;
  Target target = TargetOf(other.pid());
  target.name = "odd";
  target.control_address = 1;
  Controls controls = Make();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; i++) controls.Write(target);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            absl::StrCat("heaptap: process ", other.pid(),
                         " (odd) cannot be told its rate and its collector: cannot read memory of process ",
                         other.pid(), ": Input/output error; it keeps its own rate, and its own dumps may fail\n"));
  EXPECT_TRUE(target.is_unwritten);
  // It has ended.
  Target ended = TargetOf(other.pid());
  ended.control_address = 1;
  ended.process_id++;
  ::testing::internal::CaptureStderr();
  controls.Write(ended);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(ended.is_unwritten);
  // Any process can have such a block.
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; i++) {
    Target another = target;
    another.is_unwritten = false;
    controls.Write(another);
  }
  EXPECT_LT(std::ranges::count(::testing::internal::GetCapturedStderr(), '\n'), 20);
}

TEST_F(ControlsTest, ALaterTryMayTellAProcessItsRate) {
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  target.policy.lg_sample = 12;
  target.is_unwritten = true;
  Make().Write(target);
  EXPECT_FALSE(target.is_unwritten);
  EXPECT_EQ(child.Read().collector_lg_sample, 12u);
}

TEST_F(ControlsTest, WhatAProcessChangesIsReadAgain) {
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  Controls controls = Make();
  controls.ReadActive(target);
  EXPECT_EQ(target.active, false);
  ASSERT_TRUE(controls.Order(target, ControlVerb::kActive, 1).ok());
  controls.ReadActive(target);
  EXPECT_EQ(target.active, true);
  target.process_id++;
  controls.ReadActive(target);
  EXPECT_EQ(target.active, std::nullopt) << "not that of another process";
}

TEST_F(ControlsTest, TablesAreAnsweredToThoseThatThisCollectorControls) {
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  target.foreign = true;
  Make().AnswerTables(target, 5);
  EXPECT_EQ(child.Read().tables_ready, 0u);
  target.foreign = false;
  Make().AnswerTables(target, 5);
  EXPECT_EQ(child.Read().tables_ready, 5u);
}

// Stopped hands stand for a process whose memory does not answer.
TEST_F(ControlsTest, WhoDoesNotAnswerIsAskedAgainLater) {
  FakeClock clock;
  const ControlledChild child;
  Target target = TargetOf(child.pid());
  Controls controls = Make();
  ASSERT_TRUE(controls.Order(target, ControlVerb::kRead).ok());
  for (const pid_t pid : OwnHands()) kill(pid, SIGSTOP);
  std::thread time([&] {
    clock.AwaitWaiter(kPatience);
    clock.Advance(kPatience);
  });
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(absl::IsDeadlineExceeded(controls.Order(target, ControlVerb::kRead).status()));
  time.join();
  // Meanwhile its rate and its owner are as they were.
  EXPECT_TRUE(absl::IsUnavailable(controls.Order(target, ControlVerb::kRead).status()));
  controls.Write(target);
  EXPECT_TRUE(target.is_unwritten);
  controls.NoteOwner(target);
  EXPECT_FALSE(target.owner_known);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  clock.Advance(worker::Hands::kRest.first);
  controls.Write(target);
  EXPECT_FALSE(target.is_unwritten);
  controls.NoteOwner(target);
  EXPECT_TRUE(target.owner_known);
}

TEST_F(ControlsTest, AProcessThatChangesItsUserBelongsToRoot) {
  if (getuid() != 0) GTEST_SKIP() << "needs processes of two users";
  const Child of_user([] { return setuid(1234) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; });
  const Child of_root;
  Controls controls = Make();
  Target target = TargetOf(of_user.pid());
  controls.NoteOwner(target);
  EXPECT_EQ(target.owner, 1234u);
  controls.NoteOwner(target);
  EXPECT_EQ(target.owner, 1234u);
  Target same = TargetOf(of_root.pid());
  same.owner = target.owner;
  same.owner_known = true;
  controls.NoteOwner(same);
  EXPECT_EQ(same.owner, std::nullopt);
  // For ever.
  same.pid = of_user.pid();
  same.process_id = target.process_id;
  controls.NoteOwner(same);
  EXPECT_EQ(same.owner, std::nullopt);
}

TEST_F(ControlsTest, TheOwnerOfAnotherProcessIsNotNoted) {
  Target target = TargetOf(getpid());
  target.process_id++;
  Make().NoteOwner(target);
  EXPECT_FALSE(target.owner_known);
}

}  // namespace
}  // namespace heaptap::recording
