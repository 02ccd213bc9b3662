// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/controlled_child.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/parts.h"
#include "tests/unit/support/simulated_books.h"
#include "userspace/process/facts.h"
#include "userspace/targets/readings.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kMinute = absl::Minutes(1);  // a busy machine may let hands wait for long
constexpr absl::Duration kRoundPause = Readings::kRoundPause;

class ReadingsTest : public ::testing::Test {
 protected:
  Target& TargetOf(pid_t pid, bool is_current = true) {
    // Else the PID has been used again.
    return targets_.Add(kernel_.Enter(pid, "child") + (is_current ? 0 : 1), pid, {});
  }
  Target& TargetOf(const ControlledChild& child) {
    Target& target = TargetOf(child.pid());
    Set(target.image, &Image::control_address, ControlledChild::address());
    return target;
  }
  Readings Make(worker::Looks& orders) {
    return {{.processes = books_->processes(), .orders = orders, .targets = targets_},
            [this](Target& target, const process::Facts* facts) {
              read_.push_back(facts == nullptr ? std::to_string(target.pid) + " without facts" : facts->command);
            }};
  }
  void Read(const Target& target) {
    readings_.Want(target);
    readings_.ReadWanted();
  }

  bpf::SimulatedKernel kernel_;
  std::unique_ptr<bpf::Books> books_ = bpf::MakeSimulatedBooks(kernel_, false);
  worker::Looks in_caller_{-1, {}, {.patience = kMinute}, /*waiting=*/0, worker::Looks::Place::kCaller};
  TargetTable targets_;
  std::vector<std::string> read_;
  Readings readings_ = Make(in_caller_);
};

TEST_F(ReadingsTest, AProcess) {
  const ControlledChild child([](heaptap_control& block) { block.active = 1; });
  Target& target = TargetOf(child);
  EXPECT_FALSE(target.facts->is_known());
  Read(target);
  EXPECT_TRUE(target.facts->is_known());
  const process::Facts facts = *process::ReadFacts(child.pid());
  EXPECT_EQ(target.facts->owner, facts.owner);
  EXPECT_EQ(target.facts->control_groups, facts.control_groups);
  EXPECT_EQ(target.image->active, true);
  EXPECT_EQ(target.image->allocator_name, "heaptap");
  EXPECT_THAT(read_, ElementsAre(facts.command));
}

TEST_F(ReadingsTest, NothingIsKnownOfAnotherProcessWithItsPid) {
  const ControlledChild child;
  Target& target = TargetOf(child.pid(), /*is_current=*/false);
  Set(target.image, &Image::control_address, ControlledChild::address());
  Read(target);
  EXPECT_FALSE(target.facts->is_known());
  EXPECT_EQ(target.image->active, std::nullopt);
  EXPECT_THAT(read_, ElementsAre(std::to_string(child.pid()) + " without facts"));
}

TEST_F(ReadingsTest, FactsOfALookCountUnlessTheyMayBeThoseOfAnotherProgram) {
  const Child child;
  Target& target = TargetOf(child.pid());
  const process::Facts facts = *process::ReadFacts(child.pid());
  EXPECT_FALSE(readings_.NoteLook(target, facts, target.books->begun - absl::Nanoseconds(1)));
  EXPECT_FALSE(target.facts->is_known());
  readings_.ReadWanted();
  EXPECT_THAT(read_, ElementsAre(facts.command)) << "they are read again";
  Target& other = TargetOf(getppid());
  EXPECT_TRUE(readings_.NoteLook(other, facts, other.books->begun));
  EXPECT_EQ(other.facts->owner, facts.owner);
  readings_.ReadWanted();
  EXPECT_THAT(read_, SizeIs(1)) << "nothing is wanted";
}

TEST_F(ReadingsTest, AProcessThatChangesItsUserBelongsToRoot) {
  if (getuid() != 0) GTEST_SKIP() << "needs processes of two users";
  const Child of_user([] { return setuid(1234) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; });
  const Child of_root;
  Target& target = TargetOf(of_user.pid());
  Read(target);
  EXPECT_EQ(target.facts->owner, 1234u);
  Read(target);
  EXPECT_EQ(target.facts->owner, 1234u);
  Target& same = TargetOf(of_root.pid());
  same.facts = target.facts;
  Read(same);
  EXPECT_EQ(same.facts->owner, std::nullopt);
  // For ever.
  Readings::Note(same, *process::ReadFacts(of_user.pid()), base::Now());
  EXPECT_EQ(same.facts->owner, std::nullopt);
}

TEST_F(ReadingsTest, TheSavedStateHasTheLatestFacts) {
  const ControlledChild child;
  Target& target = TargetOf(child);
  process::Facts facts = *process::ReadFacts(child.pid());
  const auto is_saved_after_note = [&] {
    target.is_saved = true;
    Readings::Note(target, facts, base::Now());
    return target.is_saved;
  };
  EXPECT_FALSE(is_saved_after_note());
  EXPECT_TRUE(is_saved_after_note());
  facts.user++;
  EXPECT_FALSE(is_saved_after_note());
  facts.control_groups.push_back("/other");
  EXPECT_FALSE(is_saved_after_note());
}

TEST_F(ReadingsTest, WhatAProcessChangesIsReadInTheNextRound) {
  FakeClock clock;
  const ControlledChild child;
  Target& target = TargetOf(child);
  EXPECT_TRUE(readings_.Refresh(base::Now()));
  EXPECT_EQ(target.image->active, false);
  EXPECT_GT(target.facts->memory.resident_bytes, 0);
  child.Write([](heaptap_control& block) { block.active = 1; });
  EXPECT_TRUE(readings_.Refresh(base::Now()));
  EXPECT_EQ(target.image->active, false) << "each reading opens the memory of every process";
  clock.Advance(kRoundPause);
  EXPECT_TRUE(readings_.Refresh(base::Now(), 2 * kRoundPause));
  EXPECT_EQ(target.image->active, false) << "older facts are good enough";
  EXPECT_TRUE(readings_.Refresh(base::Now()));
  EXPECT_EQ(target.image->active, true);
}

TEST_F(ReadingsTest, AnOwnerAsOfTheQuestion) {
  FakeClock clock;
  const ControlledChild child;
  Target& target = TargetOf(child);
  EXPECT_TRUE(readings_.IsRead(target, base::Now()));
  const base::Instant first = target.facts->read;
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(readings_.IsRead(target, first)) << "no reading is needed";
  EXPECT_EQ(target.facts->read, first);
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE(readings_.IsRead(target, base::Now()));
  EXPECT_EQ(target.facts->read, base::Now());
}

// A list of all processes is made without those that are slow.
TEST_F(ReadingsTest, WhoAsksForAllProcessesDoesNotWaitForSlowOnes) {
  FakeClock clock;
  worker::Looks orders(-1, {}, {.patience = kMinute});
  Readings readings = Make(orders);
  const ControlledChild child;
  Target& target = TargetOf(child);
  EXPECT_FALSE(readings.Refresh(base::Now()));
  EXPECT_FALSE(readings.Refresh(base::Now() + Readings::kPatience - absl::Milliseconds(1)));
  EXPECT_TRUE(readings.Refresh(base::Now() + Readings::kPatience));
  EXPECT_FALSE(target.facts->is_known());
  // It is read all the same.
  EXPECT_TRUE(orders.WaitUntil([&] { return target.facts->is_known(); }, base::Now() + kMinute));
}

TEST_F(ReadingsTest, AProcessThatIsGoneWhenItHasBeenRead) {
  worker::Looks orders(-1, {}, {.patience = kMinute});
  Readings readings = Make(orders);
  const ControlledChild child;
  Target& target = TargetOf(child);
  readings.Want(target);
  readings.ReadWanted();
  targets_.Erase(target.process_id);
  EXPECT_TRUE(orders.WaitUntil([&] { return orders.IsIdle(); }, base::Now() + kMinute));
  EXPECT_THAT(read_, IsEmpty());
}

}  // namespace
}  // namespace heaptap::recording
