// SPDX-License-Identifier: Apache-2.0
//
// Books in which a sample finds no room or is in the way of a sweep (bpf/books.bpf.h, bpf/stack.bpf.h), on the
// simulated kernel.
#include <errno.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kTries = 1000;  // PATIENT_TRIES of bpf/books.bpf.h

class HostFullBooks : public MachineTest {};

// --- entries that are in the way, maps that are full -----------------------------------------------------------------

TEST_F(HostFullBooks, ASampleWaitsForTheSweepOfItsEntry) {
  for (const uint64_t tries : {uint64_t{1}, uint64_t{2}, kTries, kTries + 1, kTries + 2}) {
    const uint64_t address = 0x10000 * tries;
    const uint64_t id = Track().identity.id;
    Fire({.address = address, .serial = 1});
    HandOver({{address, 1}});
    Live(address)->serial = HEAPTAP_LIVE_CLAIMED;
    uint64_t updates = 0;
    kernel.before_update = [&](std::string_view map) {
      if (map != "live" || ++updates != tries) return;
      kernel.Remove("live", heaptap_live_key{id, address});
      Counter(HEAPTAP_COUNTER_LIVE_ENTRIES)--;
    };
    Fire({.address = address, .serial = 2});
    const bool is_in_time = tries <= kTries;
    EXPECT_EQ(LiveObjects(id).objects, is_in_time) << tries;
    EXPECT_EQ(LossesOf(id), is_in_time ? Losses{} : (Losses{{HEAPTAP_LOSS_LIVE_FULL, 1}})) << tries;
    kernel.before_update = nullptr;
  }
}

// The sample has taken out an object whose free was missed, and finds no room itself.
TEST_F(HostFullBooks, WhatALostSampleRemovedIsGoneFromTheFigures) {
  const heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES);
  Alloc({});
  kernel.before_lookup = [&](std::string_view map) {
    if (map == "tallies" && Live(0x1000)->serial == HEAPTAP_LIVE_NONE) Live(0x1000)->serial = HEAPTAP_LIVE_CLAIMED;
  };
  Alloc({});
  kernel.before_lookup = nullptr;
  EXPECT_EQ(AllLosses(), (Losses{{HEAPTAP_LOSS_MISSED_FREE, 1}, {HEAPTAP_LOSS_LIVE_FULL, 1}}));
  EXPECT_EQ(process.figures.live_objects, 0);
  EXPECT_EQ(process.figures.live_weight, 0);
}

TEST_F(HostFullBooks, ASampleWaitsForMemoryButNotForRoom) {
  const struct {
    long error;
    uint64_t failures;
    uint64_t updates;
    bool is_lost;
  } cases[] = {{-ENOMEM, 1, 2, false},
               {-ENOMEM, kTries - 1, kTries, false},
               {-ENOMEM, kTries, kTries, true},
               {-E2BIG, 1, 1, true},
               {-EBUSY, 1, 1, true}};
  for (const auto& one : cases) {
    const uint64_t id = Track().identity.id;
    kernel.updates = 0;
    kernel.failure = {.first = 1, .count = one.failures, .error = one.error, .map = "live"};
    Fire({.address = 0x1000});
    EXPECT_EQ(kernel.updates, one.updates) << one.error;
    EXPECT_EQ(LiveObjects(id).objects, !one.is_lost);
    EXPECT_EQ(LossesOf(id), one.is_lost ? (Losses{{HEAPTAP_LOSS_LIVE_FULL, 1}}) : Losses{}) << one.error;
  }
}

// The same for new stacks and tallies.
TEST_F(HostFullBooks, AStackAndItsTallyWaitForMemoryButNotForRoom) {
  const struct {
    const char* map;
    heaptap_loss_reason loss;
  } maps[] = {{"tallies", HEAPTAP_LOSS_TALLIES_FULL}, {"stacks", HEAPTAP_LOSS_STACKS_FULL}};
  const struct {
    long error;
    uint64_t failures;
    bool is_lost;
  } cases[] = {{-ENOMEM, 1, false}, {-ENOMEM, kTries - 1, false}, {-ENOMEM, kTries, true}, {-E2BIG, 1, true}};
  uint64_t stack = 0;
  for (const auto& map : maps) {
    for (const auto& one : cases) {
      const uint64_t id = Track().identity.id;
      kernel.updates = 0;
      kernel.failure = {.first = 1, .count = one.failures, .error = one.error, .map = map.map};
      Fire({.address = 0x1000, .stack = ++stack});
      kernel.failure = {};
      EXPECT_EQ(LossesOf(id), one.is_lost ? (Losses{{map.loss, 1}}) : Losses{}) << map.map << one.error << one.failures;
      if (!one.is_lost) EXPECT_NE(StackId(0x1000), HEAPTAP_NO_STACK);
    }
  }
}

TEST_F(HostFullBooks, AFullMapOfObjectsIsALossAndAsksForASweep) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_RECORDS).identity.id;
  kernel.map("live").max_entries = 3;
  Counter(HEAPTAP_COUNTER_SWEEP_AT) = 3;
  for (uint64_t i = 1; i <= 2; i++) Fire({.address = 0x1000 * i});
  EXPECT_THAT(TakeKinds(), IsEmpty());
  Fire({.address = 0x3000});
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_LIVE_FILLING);
  EXPECT_EQ(events[0].process_id, id);
  EXPECT_EQ(events[0].tgid, kPid);
  EXPECT_EQ(events[0].argument, 3);
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_SWEEP_AT), ~uint64_t{0});
  Fire({.address = 0x4000, .weight = 1000});
  EXPECT_THAT(TakeKinds(), IsEmpty()) << "it was sent";
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_LIVE_FULL, 1}}));
  const auto* loss = kernel.Find<heaptap_loss>("losses", heaptap_loss_key{id, HEAPTAP_LOSS_LIVE_FULL, 0});
  EXPECT_EQ(loss->weight, 1000);
  // A lost sample leaves no record either, which no free would end.
  EXPECT_EQ(kernel.Find<heaptap_record>("records", uint32_t{4})->number, 0);
  // After a sweep found no room, the next lost sample asks again.
  Counter(HEAPTAP_COUNTER_SWEEP_AT) = 3;
  Fire({.address = 0x5000});
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_LIVE_FILLING));
}

// The entry that its own free has claimed must not stay claimed, because no sweep would delete it.
TEST_F(HostFullBooks, ALostSampleReleasesTheEntryOfItsFree) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FIGURES).identity.id;
  Fire({.address = 0x1000, .serial = 1});
  Fire({.address = 0x1000, .size = 0, .serial = 2, .frees = {{0x1000, 1}}});
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_BAD_SAMPLE, 1}}));
  EXPECT_EQ(Live(0x1000)->serial, HEAPTAP_LIVE_NONE);
  EXPECT_EQ(Freed(id).objects, 1);
}

// --- stacks and tallies ----------------------------------------------------------------------------------------------

TEST_F(HostFullBooks, ALostStackLeavesTheSampleInTheTallyWithoutAStack) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FIGURES).identity.id;
  kernel.map("stacks").max_entries = 1;
  Fire({.address = 0x1000, .stack = 1});
  Fire({.address = 0x2000, .weight = 1000, .stack = 2});
  EXPECT_EQ(StackId(0x2000), HEAPTAP_NO_STACK);
  EXPECT_EQ(Tally(HEAPTAP_NO_STACK)->allocated.objects, 1);
  EXPECT_EQ(kernel.map("tallies").size(), 2) << "that of the lost stack was deleted";
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_STACKS_FULL, 1}}));
  const auto* loss = kernel.Find<heaptap_loss>("losses", heaptap_loss_key{id, HEAPTAP_LOSS_STACKS_FULL, 0});
  EXPECT_EQ(loss->weight, 1000);
}

TEST_F(HostFullBooks, StacksWithTheSameIdAreNotMixed) {
  const struct {
    uint32_t more_frames, other_end;
    uint64_t other_frame;
  } cases[] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  for (const auto& one : cases) {
    const bool is_other = one.more_frames + one.other_end + one.other_frame != 0;
    const uint64_t id = Track().identity.id;
    Fire({.address = 0x1000});
    auto* stack = kernel.Find<heaptap_stack>("stacks", StackId(0x1000));
    stack->count += one.more_frames;
    stack->end += one.other_end;
    stack->frames[0] += one.other_frame;
    kernel.map("tallies").Clear();  // or the stack is not compared again
    Counter(HEAPTAP_COUNTER_TALLIES) = 0;
    Fire({.address = 0x2000});
    EXPECT_EQ(LossesOf(id), is_other ? (Losses{{HEAPTAP_LOSS_STACK_COLLISION, 1}}) : Losses{});
    EXPECT_EQ(StackId(0x2000) == HEAPTAP_NO_STACK, is_other);
    // As if the first sample had never been.
    kernel.map("live").Clear();
    kernel.map("tallies").Clear();
    kernel.map("stacks").Clear();
    Counter(HEAPTAP_COUNTER_TALLIES) = Counter(HEAPTAP_COUNTER_LIVE_ENTRIES) = 0;
    ForgetSamples();
  }
}

TEST_F(HostFullBooks, NoBufferForTheWalkIsALostStack) {
  const uint64_t id = Track().identity.id;
  ClaimScratch(true);
  Fire({.address = 0x1000, .weight = 1000});
  ClaimScratch(false);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_SCRATCH_BUSY, 1}}));
  EXPECT_EQ(StackId(0x1000), HEAPTAP_NO_STACK);
  EXPECT_EQ(Tally(HEAPTAP_NO_STACK)->allocated.weight, 1000);
}

// One loss, though the sample finds neither room for its stack nor for itself.
TEST_F(HostFullBooks, ASampleIsLostOnce) {
  const uint64_t id = Track().identity.id;
  kernel.map("stacks").max_entries = 0;
  kernel.map("live").max_entries = 0;
  Fire({});
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_LIVE_FULL, 1}}));
}

}  // namespace
}  // namespace heaptap::harness
