// SPDX-License-Identifier: Apache-2.0
//
// Figures, marks, limits and shares of a process (bpf/figures.bpf.h), on the simulated kernel.
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

class HostFigures : public MachineTest {
 protected:
  heaptap_process& TrackWith(const heaptap_triggers& triggers, uint32_t tgid = kPid) {
    heaptap_process& process = Track(tgid, HEAPTAP_PROCESS_FIGURES);
    process.triggers = triggers;
    process.marks = heaptap_first_marks(&triggers);
    return process;
  }
  // A sample at a new address.
  uint64_t FireNext(uint64_t weight, const std::vector<heaptap_free>& frees = {}) {
    address_ += 0x1000;
    return Fire({.address = address_, .size = 1, .weight = weight, .frees = frees});
  }
  heaptap_free Last(uint64_t serial) const { return {address_, serial}; }

 private:
  uint64_t address_ = 0;
};

TEST_F(HostFigures, CountWhatIsLiveAndWhatWasAllocated) {
  const heaptap_process& process = TrackWith({});
  FireNext(100);
  const heaptap_free second = Last(FireNext(50));
  EXPECT_EQ(process.figures.live_weight, 150);
  EXPECT_EQ(process.figures.allocated_weight, 150);
  EXPECT_EQ(process.figures.live_objects, 2);
  HandOver({second});
  EXPECT_EQ(process.figures.live_weight, 100);
  EXPECT_EQ(process.figures.live_objects, 1);
  EXPECT_EQ(process.figures.peak_weight, 150);
  const heaptap_free third = Last(FireNext(30));
  EXPECT_EQ(process.figures.peak_weight, 150);
  // What is freed by the same program never counts as live beside the new object.
  const heaptap_free fourth = Last(FireNext(60, {third}));
  EXPECT_EQ(process.figures.peak_weight, 160);
  EXPECT_EQ(process.figures.live_weight, 160);
  EXPECT_EQ(process.figures.live_objects, 2);
  FireNext(5, {fourth, second});
  EXPECT_EQ(process.figures.live_objects, 2);
  EXPECT_EQ(process.figures.live_weight, 105);
  EXPECT_EQ(process.figures.allocated_weight, 245);
  EXPECT_EQ(process.figures.tallies, 1);
}

TEST_F(HostFigures, AProcessWithoutFiguresHasNone) {
  heaptap_process& process = Track(kPid, 0);
  process.limits = {.max_live = 1, .max_tallies = 1};
  process.marks = {.high_water_at = 1, .interval_at = 1};
  process.triggers.interval_step = 1;
  settings().live_room = settings().tallies_room = 1;
  for (uint64_t i = 1; i <= 3; i++) Fire({.address = 0x1000 * i, .stack = i});
  EXPECT_EQ(LiveObjects(Id()).objects, 3);
  EXPECT_EQ(process.figures.peak_weight, 0);
  EXPECT_EQ(process.costs.allocations, 0);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

// --- marks -----------------------------------------------------------------------------------------------------------

TEST_F(HostFigures, HighWaterMarksRiseByAPart) {
  const struct {
    uint32_t percent;
    std::vector<uint64_t> weights;
    std::vector<uint64_t> events;  // their arguments
    uint64_t next;
  } cases[] = {{50, {999}, {}, 1000},
               {50, {1000}, {1000}, 1500},
               {50, {600, 600, 299, 1}, {1200}, 1800},
               {50, {600, 600, 600}, {1200, 1800}, 2700},
               {10, {5000, 499, 1}, {5000, 5500}, 6050},
               {0, {1000, 1}, {1000, 1001}, 1001},
               {100, {1000, 999, 1}, {1000, 2000}, 4000}};
  uint32_t pid = kPid;
  for (const auto& one : cases) {
    const heaptap_process& process = TrackWith(
        {.first_high_water = 1000, .interval_step = 0, .high_water_percent = one.percent, .reserved = 0}, ++pid);
    for (const uint64_t weight : one.weights) FireNext(weight);
    std::vector<uint64_t> arguments;
    for (const heaptap_event& event : kernel.TakeEvents()) {
      EXPECT_EQ(event.kind, HEAPTAP_EVENT_HIGH_WATER);
      EXPECT_EQ(event.process_id, process.identity.id);
      EXPECT_EQ(event.tgid, pid);
      arguments.push_back(event.argument);
    }
    EXPECT_EQ(arguments, one.events) << one.percent;
    EXPECT_EQ(process.marks.high_water_at, one.next);
    EXPECT_EQ(process.marks.interval_at, HEAPTAP_NEVER);
  }
}

// What is freed lowers no mark.
TEST_F(HostFigures, AHighWaterMarkIsPassedOnce) {
  TrackWith({.first_high_water = 1000, .interval_step = 0, .high_water_percent = 10, .reserved = 0});
  heaptap_free last = Last(FireNext(1000));
  for (int i = 0; i < 3; i++) {
    HandOver({last});
    last = Last(FireNext(1099));
  }
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_HIGH_WATER));
}

TEST_F(HostFigures, IntervalsStayOnTheGrid) {
  const struct {
    std::vector<uint64_t> weights;
    std::vector<uint64_t> events;  // their arguments
    uint64_t next;
  } cases[] = {{{999}, {}, 1000},
               {{1000}, {1000}, 2000},
               {{700, 700}, {1400}, 2000},
               {{700, 700, 599, 1}, {1400, 2000}, 3000},
               {{1999, 1}, {1999, 2000}, 3000},
               {{5500}, {5500}, 6000},
               {{5500, 499, 1}, {5500, 6000}, 7000},
               {{6000}, {6000}, 7000},
               {{1, 10000}, {10001}, 11000}};
  uint32_t pid = kPid;
  for (const auto& one : cases) {
    const heaptap_process& process =
        TrackWith({.first_high_water = 0, .interval_step = 1000, .high_water_percent = 0, .reserved = 0}, ++pid);
    for (const uint64_t weight : one.weights) FireNext(weight);
    std::vector<uint64_t> arguments;
    for (const heaptap_event& event : kernel.TakeEvents()) {
      EXPECT_EQ(event.kind, HEAPTAP_EVENT_INTERVAL);
      EXPECT_EQ(event.process_id, process.identity.id);
      EXPECT_EQ(event.tgid, pid);
      arguments.push_back(event.argument);
    }
    EXPECT_EQ(arguments, one.events) << one.weights[0];
    EXPECT_EQ(process.marks.interval_at, one.next) << one.weights[0];
    EXPECT_EQ(process.marks.high_water_at, HEAPTAP_NEVER);
  }
}

// Frees do not count against what was allocated.
TEST_F(HostFigures, IntervalsCountAllThatWasAllocated) {
  TrackWith({.first_high_water = 0, .interval_step = 1000, .high_water_percent = 0, .reserved = 0});
  heaptap_free last = Last(FireNext(400));
  last = Last(FireNext(400, {last}));
  EXPECT_THAT(TakeKinds(), IsEmpty());
  FireNext(400, {last});
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_INTERVAL));
}

// --- limits and shares -----------------------------------------------------------------------------------------------

TEST_F(HostFigures, AProcessHasAsManyObjectsAsItsLimit) {
  heaptap_process& process = TrackWith({});
  process.limits.max_live = 2;
  FireNext(10);
  const heaptap_free second = Last(FireNext(10));
  FireNext(10);
  EXPECT_EQ(LossesOf(Id()), (Losses{{HEAPTAP_LOSS_LIVE_SHARE, 1}}));
  EXPECT_EQ(LiveObjects(Id()).objects, 2);
  FireNext(10, {second});  // what comes with the sample makes room for it
  EXPECT_EQ(LossesOf(Id()), (Losses{{HEAPTAP_LOSS_LIVE_SHARE, 1}}));
  EXPECT_EQ(LiveObjects(Id()).objects, 2);
  EXPECT_THAT(TakeKinds(), IsEmpty()) << "a sweep would not help";
}

TEST_F(HostFigures, AProcessHasAsManyTalliesAsItsLimit) {
  heaptap_process& process = TrackWith({});
  process.limits.max_tallies = 2;
  for (uint64_t i = 1; i <= 4; i++) Fire({.address = 0x1000 * i, .stack = i});
  Fire({.address = 0x9000, .stack = 2});
  EXPECT_EQ(LossesOf(Id()), (Losses{{HEAPTAP_LOSS_TALLIES_SHARE, 2}}));
  EXPECT_EQ(LiveObjects(Id()).objects, 3);
  EXPECT_EQ(kernel.map("stacks").size(), 2);
}

// Own entries plus all entries must stay below the room: the last process gets half of it.
TEST_F(HostFigures, AProcessMayHaveAsMuchAsIsLeftForAll) {
  settings().live_room = 10;
  settings().tallies_room = 6;
  for (const uint32_t pid : {kPid, kPid + 1, kPid + 2}) {
    TrackWith({}, pid);
    for (uint64_t i = 1; i <= 8; i++) Fire({.address = 0x1000 * i, .stack = 1 + i % 2});
    for (uint64_t i = 1; i <= 8; i++) Fire({.address = 0x10000 * i, .stack = 10 + i});
  }
  // 5 + 5 < 10 does not hold; then 2 + (5 + 2) < 10 holds, and so on.
  EXPECT_EQ(LiveObjects(Id(kPid)).objects, 5);
  EXPECT_EQ(LiveObjects(Id(kPid + 1)).objects, 3);
  EXPECT_EQ(LiveObjects(Id(kPid + 2)).objects, 1);
  EXPECT_EQ(Process(kPid)->figures.tallies, 3);
  EXPECT_EQ(Process(kPid + 1)->figures.tallies, 2);
  EXPECT_EQ(Process(kPid + 2)->figures.tallies, 1);
}

// Entries without an object take room, which a sweep gives back.
TEST_F(HostFigures, NoRoomForAShareAsksForASweep) {
  settings().live_room = 4;
  Counter(HEAPTAP_COUNTER_SWEEP_AT) = 1000;
  TrackWith({});
  FireNext(10);
  HandOver({Last(FireNext(10))});
  FireNext(10);
  EXPECT_THAT(TakeKinds(), IsEmpty());
  FireNext(10);
  EXPECT_EQ(LossesOf(Id()), (Losses{{HEAPTAP_LOSS_LIVE_SHARE, 1}}));
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_LIVE_FILLING);
  EXPECT_EQ(events[0].argument, 3);
  FireNext(10);
  EXPECT_THAT(TakeKinds(), IsEmpty()) << "once";
  sweep(nullptr);
  FireNext(10);
  EXPECT_EQ(LiveObjects(Id()).objects, 2) << "2 live, 2 entries: no room for a third";
}

// Two threads at once may bring a figure below 0 for a moment.
TEST_F(HostFigures, AFigureBelow0IsNoFullShare) {
  heaptap_process& process =
      TrackWith({.first_high_water = 1000, .interval_step = 0, .high_water_percent = 0, .reserved = 0});
  has_own_figures = true;
  process.limits = {.max_live = 1, .max_tallies = 1};
  settings().live_room = settings().tallies_room = 1000;
  process.figures.live_objects = process.figures.tallies = ~uint64_t{0};
  process.figures.live_weight = ~uint64_t{99};
  FireNext(50);
  EXPECT_EQ(AllLosses(), Losses{});
  EXPECT_THAT(TakeKinds(), IsEmpty());
  EXPECT_EQ(process.figures.peak_weight, 0);
}

// --- a reset in the middle of a program ------------------------------------------------------------------------------

TEST_F(HostFigures, ASampleThatMeetsAResetDoesNotCountInTheNewFigures) {
  heaptap_process& process =
      TrackWith({.first_high_water = 1, .interval_step = 1, .high_water_percent = 0, .reserved = 0});
  const uint64_t before = process.identity.id;
  kernel.before_update = [&](std::string_view map) {
    if (map != "live") return;
    process.identity.id = 1000;
    process.figures = {};
  };
  FireNext(10);
  EXPECT_EQ(LiveObjects(before).objects, 1);
  EXPECT_EQ(process.figures.live_weight, 0);
  EXPECT_EQ(process.figures.live_objects, 0);
  EXPECT_EQ(process.figures.allocated_weight, 0);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

// --- costs -----------------------------------------------------------------------------------------------------------

// The first 256 samples are timed one by one, later each 16th for 16.
TEST_F(HostFigures, CostsAreAnEstimateOfTheTime) {
  const heaptap_process& process = TrackWith({});
  constexpr uint64_t kFirst = 256;
  uint64_t time = 0;
  for (uint64_t i = 0; i < kFirst + 32; i++) {
    const uint64_t before = process.costs.program_time;
    Alloc({.address = 0x1000 * (i + 1)});
    time = process.costs.program_time - before;
    if (i < kFirst) {
      EXPECT_GT(time, 0) << i;
      EXPECT_LT(time, 16) << i;
    } else if (i % 16 == 0) {
      EXPECT_GE(time, 16) << i;
      EXPECT_EQ(time % 16, 0) << i;
    } else {
      EXPECT_EQ(time, 0) << i;
    }
  }
  EXPECT_EQ(process.costs.allocations, kFirst + 32);
  EXPECT_EQ(process.costs.frees, 0);
  const uint64_t before = process.costs.program_time;
  Free(0x1000);
  EXPECT_GT(process.costs.program_time, before);
  HandOver({});
  EXPECT_EQ(process.costs.frees, 2);
  EXPECT_EQ(process.costs.allocations, kFirst + 32);
  FireNext(10);  // the one that is timed for 16
  EXPECT_EQ(process.costs.allocations, kFirst + 33);
}

// Without records, a sample that is not timed has the time of the tick.
TEST_F(HostFigures, TimesAreThoseOfTheTickUnlessTheyMustBeExact) {
  heaptap_process& process = Track(kPid, 0);
  kernel.time = 1000;
  Fire({.address = 0x1000});
  kernel.time = 2000;
  Fire({.address = 0x2000});
  EXPECT_EQ(Live(0x1000)->time, 1001);
  EXPECT_EQ(Live(0x2000)->time, 1001);
  kernel.tick++;
  Fire({.address = 0x3000});
  EXPECT_EQ(Live(0x3000)->time, 2001);
  kernel.time = 3000;
  process.flags |= HEAPTAP_PROCESS_RECORDS;
  Fire({.address = 0x4000});
  EXPECT_EQ(Live(0x4000)->time, 3001);
  process.flags = 0;
  ClaimScratch(true);
  Fire({.address = 0x5000});
  EXPECT_GT(Live(0x5000)->time, 3001);
  ClaimScratch(false);
}

}  // namespace
}  // namespace heaptap::harness
