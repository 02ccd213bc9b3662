// SPDX-License-Identifier: Apache-2.0
//
// Live objects and tallies (bpf/books.bpf.h, and the programs on samples and frees), on the simulated kernel.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

constexpr uint64_t kMaxWeight = uint64_t{1} << 47;  // MAX_WEIGHT of bpf/heaptap.bpf.c

class HostBooks : public MachineTest {
 protected:
  // The entry at an address has an object with all that is in the sample.
  void ExpectObject(const Sample& sample, uint64_t serial, uint64_t time, uint32_t tid = kPid) {
    const heaptap_live* entry = Live(sample.address);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->serial, serial);
    EXPECT_EQ(entry->size, sample.size);
    EXPECT_EQ(entry->weight, sample.weight);
    EXPECT_EQ(entry->time, time);
    EXPECT_EQ(entry->tid, tid);
    const heaptap_stack* stack = kernel.Find<heaptap_stack>("stacks", uint64_t{entry->stack_id});
    ASSERT_NE(stack, nullptr);
    EXPECT_EQ(stack->count, 1);
    EXPECT_EQ(stack->frames[0], kCode + sample.stack);
    EXPECT_NE(Tally(entry->stack_id, tid), nullptr);
  }
  uint64_t LiveUpdates() const { return live_updates_; }
  void CountLiveUpdates() {
    kernel.before_update = [this](std::string_view map) { live_updates_ += map == "live"; };
  }

 private:
  uint64_t live_updates_ = 0;
};

// A stack is of the code that was mapped then.
TEST_F(HostBooks, AStackHasTheTimeOfItsFirstSample) {
  Track();
  const auto time_of_stack = [&](const Sample& sample) {
    Fire(sample);
    const auto* stack = kernel.Find<heaptap_stack>("stacks", uint64_t{Live(sample.address)->stack_id});
    return stack == nullptr ? 0 : stack->time;
  };
  kernel.time = 1000;
  const uint64_t first = time_of_stack({.address = 0x5000, .size = 48, .weight = 480, .serial = 77, .stack = 3});
  EXPECT_GT(first, 1000u);
  EXPECT_LE(first, kernel.time);
  kernel.time = 5000;
  EXPECT_EQ(time_of_stack({.address = 0x6000, .size = 48, .weight = 480, .serial = 78, .stack = 3}), first);
  EXPECT_GT(time_of_stack({.address = 0x7000, .size = 48, .weight = 480, .serial = 79, .stack = 4}), 5000u);
  kernel.no_fields = {"with_seqcount->mm_lock_seq.sequence", "with_int->mm_lock_seq"};
  EXPECT_EQ(time_of_stack({.address = 0x8000, .size = 48, .weight = 480, .serial = 80, .stack = 5}), 0)
      << "the kernel does not tell walks of all changes";
}

TEST_F(HostBooks, ASampleIsAnObjectAndATally) {
  const uint64_t id = Track().identity.id;
  RunAs(kPid, kPid + 7);
  kernel.time = 1000;
  const Sample sample = {.address = 0x5000, .size = 48, .weight = 480, .serial = 77, .stack = 3};
  Fire(sample);
  ExpectObject(sample, 77, 1001, kPid + 7);
  EXPECT_EQ(Live(0x5000)->record, 0);
  const heaptap_tally* tally = Tally(StackId(0x5000), kPid + 7);
  EXPECT_EQ(tally->allocated.objects, 1);
  EXPECT_EQ(tally->allocated.bytes, 48);
  EXPECT_EQ(tally->allocated.weight, 480);
  EXPECT_EQ(tally->allocated.weighted_objects, 10 << HEAPTAP_OBJECT_FRACTION_BITS);
  HandOver({{0x5000, 77}});
  EXPECT_EQ(memcmp(&tally->allocated, &tally->freed, sizeof(heaptap_count)), 0);
  EXPECT_EQ(Live(0x5000)->serial, HEAPTAP_LIVE_NONE);
  EXPECT_EQ(LiveObjects(id), Totals{});
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostBooks, TheEstimateOfObjectsIsAFraction) {
  Track();
  const struct {
    uint64_t size, weight, weighted_objects;
  } cases[] = {{64, 64, 1 << 16}, {64, 96, 3 << 15}, {3, 4, (4 << 16) / 3}, {1, kMaxWeight, kMaxWeight << 16}};
  uint64_t stack = 1;
  for (const auto& one : cases) {
    Fire({.address = 0x1000 * stack, .size = one.size, .weight = one.weight, .stack = stack});
    EXPECT_EQ(Tally(StackId(0x1000 * stack))->allocated.weighted_objects, one.weighted_objects) << one.size;
    stack++;
  }
}

TEST_F(HostBooks, BadSamplesAreALoss) {
  const struct {
    uint64_t size, weight, serial;
    bool is_good;
  } cases[] = {{0, 10, 1, false},
               {11, 10, 1, false},
               {10, 10, 1, true},
               {10, kMaxWeight, 2, true},
               {10, kMaxWeight + 1, 3, false},
               {10, 10, HEAPTAP_LIVE_CLAIMED, false},
               {10, ~uint64_t{0}, 3, false}};
  Track();
  uint64_t bad = 0;
  uint64_t address = 0;
  for (const auto& one : cases) {
    address += 0x1000;
    const uint64_t before = LiveObjects(Id()).objects;
    Fire({.address = address, .size = one.size, .weight = one.weight, .serial = one.serial});
    EXPECT_EQ(LiveObjects(Id()).objects - before, one.is_good) << one.size << " " << one.weight;
    bad += !one.is_good;
    EXPECT_EQ(LossesOf(Id()), (Losses{{HEAPTAP_LOSS_BAD_SAMPLE, bad}}));
  }
  EXPECT_EQ(bad, 5);
}

// A number that no object has: heaptap:alloc without one.
TEST_F(HostBooks, ASampleWithoutANumberIsBad) {
  Track();
  pt_regs registers = {};
  registers.ip = kCode;
  registers.sp = kStackMemory;
  registers.di = 0x1000;
  registers.si = registers.dx = 16;
  kernel.cookie = HEAPTAP_PROBE_SAMPLE_SITE;
  EXPECT_EQ(probe_sample(&registers), 0);
  EXPECT_EQ(AllLosses(), (Losses{{HEAPTAP_LOSS_BAD_SAMPLE, 1}}));
  EXPECT_EQ(kernel.map("live").size(), 0);
  kernel.map("losses").Clear();  // the sample was not one of Fire()
}

// No sample of this process is timed, so the programs read the clock for the number only.
TEST_F(HostBooks, SamplesWithoutNumbersInOneTickAreDifferentObjects) {
  Track();
  Alloc({.address = 0x7000});
  const uint64_t first = Live(0x7000)->serial;
  Free(0x7000);
  Alloc({.address = 0x7000});
  EXPECT_GT(Live(0x7000)->serial, first);
}

// --- an address that is used again -----------------------------------------------------------------------------------

// The ways from an object at an address to the next one there, before a sweep.
struct Again {
  std::string name;
  bool is_numbered;                                // both samples are
  std::function<void(HostBooks&, uint64_t)> free;  // of the first object, by its serial number; null: missed
  bool with_the_sample;                            // the free comes with the second sample
  bool is_missed = false;                          // the free is a counted loss
};

class HostBooksAgain : public HostBooks, public ::testing::WithParamInterface<Again> {};

TEST_P(HostBooksAgain, TheEntryIsThatOfTheNewObject) {
  const Again& again = GetParam();
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_RECORDS | HEAPTAP_PROCESS_FIGURES).identity.id;
  CountLiveUpdates();
  kernel.time = 1000;
  const Sample first = {.address = 0x7000, .size = 10, .weight = 100, .serial = 5, .stack = 1};
  again.is_numbered ? void(Fire(first)) : Alloc(first);
  const heaptap_live before = *Live(0x7000);
  ExpectObject(first, again.is_numbered ? 5 : 1001, 1001);
  if (again.free) again.free(*this, before.serial);

  RunAs(kPid, kPid + 1);
  kernel.time = 50000;
  Sample second = {.address = 0x7000, .size = 24, .weight = 2400, .serial = 9, .stack = 2};
  if (again.with_the_sample) second.frees = {{0x7000, 5}};
  again.is_numbered ? void(Fire(second)) : Alloc(second);
  ExpectObject(second, again.is_numbered ? 9 : 50001, 50001, kPid + 1);
  EXPECT_NE(Live(0x7000)->stack_id, before.stack_id);
  EXPECT_EQ(before.record, 1);
  EXPECT_EQ(Live(0x7000)->record, 2);
  EXPECT_EQ(kernel.map("live").size(), 1);
  EXPECT_EQ(LiveUpdates(), 1) << "the entry was changed in place";
  EXPECT_EQ(LiveObjects(id), (Totals{1, 24, 2400}));
  EXPECT_EQ(Tally(before.stack_id, kPid)->freed.objects, 1);
  EXPECT_EQ(Tally(before.stack_id, kPid)->freed.weight, 100);
  EXPECT_EQ(LossesOf(id), again.is_missed ? (Losses{{HEAPTAP_LOSS_MISSED_FREE, 1}}) : Losses{});
  if (again.is_missed) {
    const auto* loss = kernel.Find<heaptap_loss>("losses", heaptap_loss_key{id, HEAPTAP_LOSS_MISSED_FREE, 0});
    EXPECT_EQ(loss->weight, 2400);
  }

  // What is left of the first object is no longer known.
  HandOver({{0x7000, before.serial}});
  EXPECT_EQ(LiveObjects(id), (Totals{1, 24, 2400}));
  HandOver({{0x7000, Live(0x7000)->serial}});
  EXPECT_EQ(LiveObjects(id), Totals{});
}

INSTANTIATE_TEST_SUITE_P(
    , HostBooksAgain,
    ::testing::Values(Again{"FreedBefore", true,
                            [](HostBooks& books, uint64_t serial) {
                              books.HandOver({{0x7000, serial}});
                            },
                            false},
                      Again{"FreedWithTheSample", true, nullptr, true}, Again{"FreedLate", true, nullptr, false},
                      Again{"OfAnotherAllocator", false, [](HostBooks& books, uint64_t) { books.Free(0x7000); }, false},
                      Again{"MissedByAnotherAllocator", false, nullptr, false, true}),
    [](const auto& info) { return info.param.name; });

// --- frees -----------------------------------------------------------------------------------------------------------

TEST_F(HostBooks, FreesLateTwiceAndInAnyOrder) {
  const std::vector<std::vector<heaptap_free>> orders = {
      {{0x1000, 1}, {0x2000, 2}, {0x1000, 3}},
      {{0x1000, 3}, {0x2000, 2}, {0x1000, 1}},
      {{0x2000, 2}, {0x2000, 2}, {0x1000, 3}},
      {{0x1000, 1}, {0x1000, 1}, {0x1000, 3}, {0x1000, 3}, {0x2000, 2}},
      {{0x1000, 2}, {0x2000, 1}, {0x1000, 3}, {0x2000, 2}}};
  uint32_t pid = kPid;
  for (const std::vector<heaptap_free>& frees : orders) {
    const uint64_t id = Track(++pid, HEAPTAP_PROCESS_FIGURES).identity.id;
    Fire({.address = 0x1000, .serial = 1});
    Fire({.address = 0x2000, .serial = 2, .stack = 2});
    Fire({.address = 0x1000, .serial = 3, .stack = 3});  // the first one was freed, and the free comes late
    EXPECT_EQ(LiveObjects(id).objects, 2);
    for (const heaptap_free& freed : frees) HandOver({freed});
    EXPECT_EQ(LiveObjects(id), Totals{});
    EXPECT_EQ(Freed(id), Allocated(id));
  }
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostBooks, NumbersThatNoObjectHasFreeNothing) {
  const uint64_t id = Track().identity.id;
  Fire({.address = 0x1000, .serial = 1});
  HandOver({{0x1000, HEAPTAP_LIVE_NONE}, {0x1000, HEAPTAP_LIVE_CLAIMED}, {0x1000, 2}, {0x2000, 1}});
  EXPECT_EQ(LiveObjects(id).objects, 1);
  HandOver({{0x1000, 1}});
  HandOver({{0x1000, HEAPTAP_LIVE_NONE}});
  Live(0x1000)->serial = HEAPTAP_LIVE_CLAIMED;  // a sweep is about to delete it
  HandOver({{0x1000, HEAPTAP_LIVE_CLAIMED}});
  Free(0x1000);
  EXPECT_EQ(Live(0x1000)->serial, HEAPTAP_LIVE_CLAIMED);
  EXPECT_EQ(Freed(id).objects, 1);
}

TEST_F(HostBooks, AFreeCountsInTheTallyOfTheAllocation) {
  const uint64_t id = Track().identity.id;
  Fire({.address = 0x1000, .serial = 1, .stack = 4});
  RunAs(kPid, kPid + 5);
  HandOver({{0x1000, 1}}, 2, 6);
  EXPECT_EQ(kernel.map("tallies").size(), 1);
  EXPECT_EQ(Tally(StackId(0x1000), kPid)->freed.objects, 1);
  EXPECT_EQ(Freed(id), (Totals{1, 64, 640}));
}

TEST_F(HostBooks, AFreeOfAnotherProcessIsNone) {
  Track(kPid);
  Fire({.address = 0x1000, .serial = 1});
  Track(kPid + 1);
  HandOver({{0x1000, 1}});
  Free(0x1000);
  EXPECT_EQ(LiveObjects(Id(kPid)).objects, 1);
}

// Several frees come with a sample, the first one in registers.
TEST_F(HostBooks, FreesThatComeWithASample) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FIGURES).identity.id;
  for (uint64_t i = 1; i <= 4; i++) Fire({.address = 0x1000 * i, .serial = i, .stack = i});
  Fire({.address = 0x9000, .serial = 5, .stack = 5, .frees = {{0x1000, 1}, {0x3000, 3}, {0x4000, 4}}});
  EXPECT_EQ(LiveObjects(id).objects, 2);
  for (const uint64_t address : {0x1000, 0x3000, 0x4000}) {
    EXPECT_EQ(Live(address)->serial, HEAPTAP_LIVE_NONE) << "or no sweep would delete it";
  }
  EXPECT_EQ(Live(0x2000)->serial, 2);
  EXPECT_EQ(Live(0x9000)->serial, 5);
  // The tally of the freed object is that of the new one if both have the same stack and thread.
  Fire({.address = 0xa000, .serial = 6, .stack = 5, .frees = {{0x9000, 5}}});
  EXPECT_EQ(Tally(StackId(0xa000))->allocated.objects, 2);
  RunAs(kPid, kPid + 1);
  Fire({.address = 0xb000, .serial = 7, .stack = 5, .frees = {{0xa000, 6}}});
  EXPECT_EQ(Tally(StackId(0xb000), kPid)->allocated.objects, 2);
  EXPECT_EQ(Tally(StackId(0xb000), kPid + 1)->allocated.objects, 1);
  // The first free is of the address of the sample, but of an object that is not there.
  Fire({.address = 0xb000, .serial = 8, .stack = 6, .frees = {{0xb000, 6}}});
  EXPECT_EQ(Live(0xb000)->serial, 8);
  EXPECT_EQ(LiveObjects(id).objects, 2);
}

// The thread has written an entry, and not yet the number of entries.
TEST_F(HostBooks, FreesBeyondTheirNumberAreNone) {
  const uint64_t id = Track().identity.id;
  for (uint64_t i = 1; i <= 5; i++) Fire({.address = 0x1000 * i, .serial = i});
  Hold(1, {{0x1000, 1}, {0x2000, 2}, {0x3000, 3}, {0x4000, 4}});
  Fire({.address = 0x9000, .serial = 6, .frees = {{0x1000, 1}, {0x2000, 2}}});
  EXPECT_EQ(LiveObjects(id).objects, 4);
}

// A sweep comes between a free and the sample that fills its entry in.
TEST_F(HostBooks, ASweepLeavesTheEntryOfASample) {
  const uint64_t id = Track().identity.id;
  for (const bool with_the_sample : {false, true}) {
    Sample sample = {.address = 0x1000, .serial = 2};
    if (with_the_sample) sample.frees = {{0x1000, 1}};
    Fire({.address = 0x1000, .serial = 1});
    uint64_t sweeps = 0;
    kernel.before_lookup = [&](std::string_view map) {
      const heaptap_live* entry = Live(0x1000);
      if (map != "tallies" || entry == nullptr || entry->serial != HEAPTAP_LIVE_CLAIMED || sweeps++ != 0) return;
      sweep(nullptr);
    };
    Fire(sample);
    kernel.before_lookup = nullptr;
    EXPECT_EQ(sweeps > 0, with_the_sample);
    EXPECT_EQ(LiveObjects(id).objects, 1);
    EXPECT_EQ(Live(0x1000)->serial, 2);
    HandOver({{0x1000, 2}});
  }
}

}  // namespace
}  // namespace heaptap::harness
