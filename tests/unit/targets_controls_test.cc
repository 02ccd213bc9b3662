// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/controlled_child.h"
#include "tests/unit/support/answered.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/own_hands.h"
#include "tests/unit/support/parts.h"
#include "tests/unit/support/simulated_books.h"
#include "userspace/process/control_block.h"
#include "userspace/targets/controls.h"

namespace heaptap::recording {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);  // a busy machine may let hands wait for long

using worker::ControlVerb;

constexpr pid_t kNobody = 5'000'001;  // above the kernel's largest PID

class ControlsTest : public ::testing::Test {
 protected:
  Controls Make(bool is_system_wide = true) {
    return {{.processes = books_->processes(), .orders = orders_, .targets = targets_},
            {.is_system_wide = is_system_wide, .follow = true}};
  }
  Target& TargetOf(pid_t pid, bool is_current = true) {
    // Else the PID has been used again.
    const uint64_t process_id = kernel_.Enter(pid, "child") + (is_current ? 0 : 1);
    Target& target = targets_.Add(process_id, pid, {});
    Set(target.image, &Image::control_address, ControlledChild::address());
    return target;
  }
  static void Use(Controls& controls, Target& target, const heaptap_control& control) {
    Controls::Note(target, control, ControlledChild::address());
    controls.Take(target, control);
  }
  static absl::Status Order(Controls& controls, const Target& target, ControlVerb verb, uint32_t argument = 0) {
    return Answered<absl::StatusOr<heaptap_control>>([&](auto done) { controls.Order(target, verb, argument, done); })
        .status();
  }

  bpf::SimulatedKernel kernel_;
  worker::Looks orders_{-1, {}, {.patience = kPatience}, /*waiting=*/0, worker::Looks::Place::kCaller};
  TargetTable targets_;
  std::unique_ptr<bpf::Books> books_ = bpf::MakeSimulatedBooks(kernel_, false);
};

TEST_F(ControlsTest, TakesFactsAndControl) {
  const ControlledChild child([](heaptap_control& block) { block.active = 1; });
  Target& target = TargetOf(child.pid());
  Set(target.policy, &Policy::lg_sample, 12);
  Controls controls = Make();
  Use(controls, target, child.Read());
  EXPECT_TRUE(target.image->has_started);
  EXPECT_EQ(target.image->lg_sample, 17u);
  EXPECT_EQ(target.image->max_frames, 99u);
  EXPECT_EQ(target.image->allocator.begin, 0x1000u);
  EXPECT_EQ(target.image->active, true);
  EXPECT_EQ(target.image->allocator_name, "heaptap");
  const heaptap_control block = child.Read();
  EXPECT_EQ(block.collector_pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(block.collector_lg_sample, 12u);
  EXPECT_EQ(block.collector_follows, 1u);
}

TEST_F(ControlsTest, WithoutARequestedRateTheProcessKeepsItsOwn) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Controls controls = Make();
  Use(controls, target, child.Read());
  EXPECT_EQ(child.Read().collector_lg_sample, HEAPTAP_NO_RATE);
}

TEST_F(ControlsTest, WhatAnotherCollectorRecordsStaysItsOwn) {
  const Child collector([] { return prctl(PR_SET_NAME, process::kCollectorName) == 0; });
  const auto pid = static_cast<uint32_t>(collector.pid());
  const ControlledChild child([pid](heaptap_control& block) { block.collector_pid = pid; });
  Target& target = TargetOf(child.pid());
  Controls controls = Make();
  ::testing::internal::CaptureStderr();
  Use(controls, target, child.Read());
  Use(controls, target, child.Read());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_TRUE(target.control->is_foreign);
  ASSERT_NE(target.control->other, nullptr);
  EXPECT_EQ(target.control->other->pid, collector.pid());
  EXPECT_FALSE(target.control->other->HasEnded());
  EXPECT_EQ(child.Read().collector_pid, pid);
  // Who records one process has asked for it.
  Controls of_one = Make(false);
  Use(of_one, target, child.Read());
  EXPECT_FALSE(target.control->is_foreign);
  EXPECT_EQ(child.Read().collector_pid, static_cast<uint32_t>(getpid()));
}

// A killed collector leaves its PID behind.
TEST_F(ControlsTest, ADeadCollectorControlsNothing) {
  const Child other;  // not a collector, but with its PID
  for (const pid_t pid : {kNobody, other.pid()}) {
    const ControlledChild child([pid](heaptap_control& block) { block.collector_pid = pid; });
    Target& target = TargetOf(child.pid());
    Controls controls = Make();
    Use(controls, target, child.Read());
    EXPECT_FALSE(target.control->is_foreign);
    EXPECT_EQ(child.Read().collector_pid, static_cast<uint32_t>(getpid()));
  }
}

TEST_F(ControlsTest, AProcessThatHasEndedIsNotTouched) {
  const ControlledChild child;
  const Target& target = TargetOf(child.pid(), /*is_current=*/false);
  Controls controls = Make();
  EXPECT_TRUE(absl::IsNotFound(Order(controls, target, ControlVerb::kActive, 1)));
  EXPECT_EQ(child.Read().active, 0u);
  EXPECT_FALSE(target.control->was_late);
}

TEST_F(ControlsTest, ReleasesControlOrSaysThatItCannot) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Set(target.policy, &Policy::lg_sample, 12);
  Controls controls = Make();
  Use(controls, target, child.Read());
  ::testing::internal::CaptureStderr();
  controls.Release(target);
  EXPECT_EQ(child.Read().collector_pid, 0u);
  EXPECT_EQ(child.Read().collector_lg_sample, HEAPTAP_NO_RATE);
  const Child other;
  Target& unmapped = TargetOf(other.pid());
  unmapped.name = "odd";
  Set(unmapped.image, &Image::control_address, 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");

  ::testing::internal::CaptureStderr();
  controls.Release(unmapped);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            absl::StrCat("heaptap: process ", other.pid(),
                         " (odd) still names this collector: cannot read memory of process ", other.pid(),
                         ": Input/output error; the next one takes it over\n"));
  // It has ended.
  Target& ended = TargetOf(other.pid(), /*is_current=*/false);
  Set(ended.image, &Image::control_address, 1);
  ::testing::internal::CaptureStderr();
  controls.Release(ended);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  // Any process can have such a block.
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; i++) controls.Release(unmapped);
  EXPECT_LT(std::ranges::count(::testing::internal::GetCapturedStderr(), '\n'), 20);
}

// Order has tried it twice. The next try is that of the next second.
TEST_F(ControlsTest, SaysOnceThatAProcessCannotBeToldItsRate) {
  const Child other;
  Target& target = TargetOf(other.pid());
  target.name = "odd";
  Set(target.image, &Image::control_address, 1);
  Controls controls = Make();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; i++) controls.Write(target);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            absl::StrCat("heaptap: process ", other.pid(),
                         " (odd) cannot be told its rate and its collector: cannot read memory of process ",
                         other.pid(), ": Input/output error; it keeps its own rate, and its own dumps may fail\n"));
  EXPECT_TRUE(target.control->is_unwritten);
  // It has ended.
  Target& ended = TargetOf(other.pid(), /*is_current=*/false);
  Set(ended.image, &Image::control_address, 1);
  ::testing::internal::CaptureStderr();
  controls.Write(ended);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(ended.control->is_unwritten);
  // Any process can have such a block.
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; i++) {
    Set(target.control, &Control::is_unwritten, false);
    controls.Write(target);
  }
  EXPECT_LT(std::ranges::count(::testing::internal::GetCapturedStderr(), '\n'), 20);
}

TEST_F(ControlsTest, ALaterTryMayTellAProcessItsRate) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Set(target.policy, &Policy::lg_sample, 12);
  Set(target.control, &Control::is_unwritten, true);
  Make().Write(target);
  EXPECT_FALSE(target.control->is_unwritten);
  EXPECT_EQ(child.Read().collector_lg_sample, 12u);
}

TEST_F(ControlsTest, TablesAreAnsweredToThoseThatThisCollectorControls) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Set(target.control, &Control::is_foreign, true);
  Make().AnswerTables(target, 5);
  EXPECT_EQ(child.Read().tables_ready, 0u);
  Set(target.control, &Control::is_foreign, false);
  Make().AnswerTables(target, 5);
  EXPECT_EQ(child.Read().tables_ready, 5u);
}

// Stopped hands stand for a process whose memory does not answer.
TEST_F(ControlsTest, WhoDoesNotAnswerIsAskedAgainLater) {
  FakeClock clock;
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Controls controls = Make();
  ASSERT_TRUE(Order(controls, target, ControlVerb::kRead).ok());
  StopOwnHands();
  std::thread time([&] {
    clock.AwaitWaiter(kPatience);
    clock.Advance(kPatience);
  });
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(absl::IsDeadlineExceeded(Order(controls, target, ControlVerb::kRead)));
  time.join();
  // Meanwhile its rate is as it was.
  EXPECT_TRUE(absl::IsUnavailable(Order(controls, target, ControlVerb::kRead)));
  controls.Write(target);
  EXPECT_TRUE(target.control->is_unwritten);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  clock.Advance(worker::Hands::kRest.first);
  controls.Write(target);
  EXPECT_FALSE(target.control->is_unwritten);
}

// Where another thread carries out the orders.
class LaterControlsTest : public ControlsTest {
 protected:
  void WaitForOrders() {
    ASSERT_TRUE(later_.WaitUntil([this] { return later_.IsIdle(); }, base::Now() + kPatience));
  }

  worker::Looks later_{-1, {}, {.patience = kPatience}};
  Controls controls_{{.processes = books_->processes(), .orders = later_, .targets = targets_},
                     {.is_system_wide = true, .follow = true}};
};

TEST_F(LaterControlsTest, ARateHoldsWhenItIsWritten) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Set(target.control, &Control::written_rate, 17);
  Set(target.policy, &Policy::lg_sample, 12);
  controls_.Write(target);
  EXPECT_EQ(target.LgSample(), 17u);
  // What is wanted by then is written too.
  Set(target.policy, &Policy::lg_sample, 13);
  controls_.Write(target);
  WaitForOrders();
  EXPECT_EQ(target.LgSample(), 13u);
  EXPECT_EQ(child.Read().collector_lg_sample, 13u);
}

// Orders of root about one process can be under way at the same time.
TEST_F(LaterControlsTest, WhatIsReleasedIsNotTakenAfterwards) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  Set(target.policy, &Policy::lg_sample, 12);
  controls_.Write(target);
  controls_.Release(target);
  WaitForOrders();
  EXPECT_EQ(child.Read().collector_pid, 0u);
}

TEST_F(LaterControlsTest, AProcessThatIsGoneWhenItsControlBlockHasBeenRead) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid());
  std::optional<absl::Status> read;
  controls_.FindAndTake(target, {ControlledChild::address()}, [&](const absl::Status& status) { read = status; });
  targets_.Erase(target.process_id);
  WaitForOrders();
  EXPECT_EQ(read, absl::OkStatus());
  EXPECT_EQ(child.Read().collector_pid, 0u);
}

}  // namespace
}  // namespace heaptap::recording
