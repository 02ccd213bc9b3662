// SPDX-License-Identifier: Apache-2.0
//
// What a process asks for (bpf/request_programs.bpf.h), its control block (bpf/control.bpf.h), and the program that
// calls the others (bpf/heaptap.bpf.c), on the simulated kernel.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kChild = 200;
constexpr uint32_t kOther = 400;
constexpr uint64_t kEventBytes = sizeof(heaptap_event) + 8;  // with its header, in the ring

class HostRequests : public MachineTest {
 protected:
  void Ask(uint32_t kind, uint64_t argument = 0) {
    heaptap_dump_request request = {};
    request.sequence = 17;
    request.kind = kind;
    request.argument = argument;
    Call(probe_dump, &request, sizeof(request));
  }
  // Fills the ring with events, up to this part of it or a little less.
  void FillEvents(uint64_t bytes) {
    while (kernel.ring("events").used() + kEventBytes <= bytes) {
      void* record = kernel.ring("events").Reserve(kEventBytes - 8);
      kernel.ring("events").Submit(record);
    }
  }
};

TEST_F(HostRequests, ADumpBringsTheRequest) {
  const uint64_t id = Track().identity.id;
  kernel.comm = "asks";
  for (const uint32_t kind : {uint32_t{HEAPTAP_DUMP_MANUAL}, uint32_t{HEAPTAP_DUMP_FINAL}, uint32_t{HEAPTAP_ASK_RECENT},
                              uint32_t{HEAPTAP_ASK_LOG}, uint32_t{HEAPTAP_ASK_TABLES}}) {
    Ask(kind, 5);
    const std::vector<heaptap_event> events = kernel.TakeEvents();
    ASSERT_EQ(events.size(), 1) << kind;
    EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_DUMP);
    EXPECT_EQ(events[0].tgid, kPid);
    EXPECT_EQ(events[0].process_id, id);
    EXPECT_EQ(events[0].argument, kArguments);
    EXPECT_STREQ(events[0].comm, "asks");
    heaptap_dump_request request = {};
    memcpy(&request, events[0].memory, sizeof(request));
    EXPECT_EQ(request.sequence, 17);
    EXPECT_EQ(request.kind, kind);
    EXPECT_EQ(request.argument, 5);
    EXPECT_THAT(std::vector<uint8_t>(events[0].memory + sizeof(request), events[0].memory + sizeof(events[0].memory)),
                Each(0));
  }
}

// The collector refuses it at once.
TEST_F(HostRequests, AStrangerGetsAnAnswerToo) {
  RunAs(kOther);
  Ask(HEAPTAP_DUMP_MANUAL);
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].process_id, 0);
  EXPECT_EQ(events[0].tgid, kOther);
  Ask(HEAPTAP_ASK_TABLES);
  Ask(HEAPTAP_ASK_RESET);
  Ask(HEAPTAP_ASK_RECORD, 1);
  EXPECT_THAT(TakeKinds(), IsEmpty());
  settings().everyone = 1;
  Ask(HEAPTAP_DUMP_MANUAL);
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_ENTER, HEAPTAP_EVENT_DUMP));
}

// A user's processes that are not recorded fill half of the ring at most, recorded ones three quarters.
TEST_F(HostRequests, WhoAsksInALoopLeavesRoomForOthers) {
  const uint64_t id = Track().identity.id;
  const auto used = [this] { return kernel.ring("events").used() / kEventBytes; };
  kernel.ring("events").bytes = 64 * kEventBytes;
  kernel.uid = 1000;
  RunAs(kOther);
  for (int i = 0; i < 64; i++) Ask(HEAPTAP_DUMP_MANUAL);
  EXPECT_NEAR(used(), 32, 1);
  EXPECT_EQ(AllLosses(), Losses{});
  RunAs(kPid);
  for (int i = 0; i < 64; i++) Ask(HEAPTAP_DUMP_MANUAL);
  EXPECT_NEAR(used(), 48, 1);
  EXPECT_EQ(LossesOf(0), Losses{});
  EXPECT_NEAR(LossesOf(id)[HEAPTAP_LOSS_EVENTS_FULL], 48, 1);
  // An event that a process cannot repeat is sent.
  const uint64_t before = used();
  Exit(kPid, {.tid = kPid});
  EXPECT_EQ(used(), before + 1);
}

// The more others crowd the ring, the less the requests of one user may have of it.
TEST_F(HostRequests, WhoAsksIsHeardBesideThoseWhoCrowdTheRing) {
  const uint64_t id = Track().identity.id;
  kernel.ring("events").bytes = 64 * kEventBytes;
  FillEvents(58 * kEventBytes);  // not counted for any user
  for (int i = 0; i < 10; i++) Ask(HEAPTAP_DUMP_MANUAL);
  EXPECT_EQ(kernel.ring("events").used() / kEventBytes, 63);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_EVENTS_FULL, 5}}));
}

TEST_F(HostRequests, RecordsAreKeptOnDemand) {
  const heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES);
  Ask(HEAPTAP_ASK_RECORD, 1);
  EXPECT_EQ(process.flags, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_RECORDS);
  Ask(HEAPTAP_ASK_RECORD, 0);
  EXPECT_EQ(process.flags, HEAPTAP_PROCESS_FIGURES);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

TEST_F(HostRequests, AProcessTellsOfLostSamples) {
  const uint64_t id = Track().identity.id;
  constexpr uint64_t kMostWeight = uint64_t{1} << 47;
  uint64_t bytes = 0;
  for (const uint64_t weight : {uint64_t{512}, uint64_t{1} << 40, kMostWeight, kMostWeight + 1, UINT64_MAX}) {
    Ask(HEAPTAP_ASK_LOST, weight);
    bytes += weight <= kMostWeight ? weight : 0;
  }
  RunAs(kOther);
  Ask(HEAPTAP_ASK_LOST, 512);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_NO_MEMORY, 5}}));
  EXPECT_EQ(LossesOf(0), Losses{});
  const auto* loss = kernel.Find<heaptap_loss>("losses", heaptap_loss_key{id, HEAPTAP_LOSS_NO_MEMORY, 0});
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->weight, bytes);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

// --- reset -----------------------------------------------------------------------------------------------------------

TEST_F(HostRequests, AResetBeginsNewBooks) {
  heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_FOLLOW);
  process.triggers = {.first_high_water = 1000, .interval_step = 70, .high_water_percent = 10, .reserved = 0};
  const uint64_t old_id = process.identity.id;
  process.identity.parent_tgid = 78;
  process.identity.start_time = 12345;
  Fire({.address = 0x1000, .serial = 1});
  kernel.TakeEvents();
  process.pending = kPending;
  process.costs.program_time = 99;
  const heaptap_figures before = process.figures;
  Ask(HEAPTAP_ASK_RESET, 12);
  const uint64_t new_id = process.identity.id;
  EXPECT_NE(new_id, old_id);
  EXPECT_EQ(new_id % 2, 0);
  EXPECT_EQ(process.figures.live_weight, 0);
  EXPECT_EQ(process.figures.peak_weight, 0);
  EXPECT_EQ(process.marks.high_water_at, 1000);
  EXPECT_EQ(process.marks.interval_at, 70);
  EXPECT_EQ(process.flags, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_FOLLOW);
  EXPECT_EQ(process.identity.parent_tgid, 78);
  EXPECT_EQ(process.identity.start_time, 12345);
  EXPECT_EQ(process.pending, kPending) << "it is the same image";
  EXPECT_EQ(process.costs.program_time, 99);
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_RESET);
  EXPECT_EQ(events[0].process_id, new_id);
  EXPECT_EQ(events[0].argument, old_id);
  heaptap_dump_request request = {};
  memcpy(&request, events[0].memory, sizeof(request));
  EXPECT_EQ(request.argument, 12);
  const heaptap_process* ended = Unnoticed(old_id);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->flags, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_RESET);
  EXPECT_EQ(ended->identity.parent_tgid, kPid);
  EXPECT_EQ(memcmp(&ended->figures, &before, sizeof(before)), 0);
  // An object of the old books is none of the new ones.
  HandOver({{0x1000, 1}});
  EXPECT_EQ(LiveObjects(old_id).objects, 1);
  EXPECT_EQ(process.figures.live_objects, 0);
}

TEST_F(HostRequests, AVforkChildHasNothingToReset) {
  const uint64_t id = Track(kPid).identity.id;
  Fork(kPid, kChild, true);
  RunAs(kChild);
  Ask(HEAPTAP_ASK_RESET);
  EXPECT_EQ(Id(kPid), id);
  EXPECT_EQ(Id(kChild), id);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

TEST_F(HostRequests, WhoResetsInALoopLeavesRoomForOthers) {
  const uint64_t id = Track().identity.id;
  const uint64_t size = kernel.ring("events").bytes = 64 * kEventBytes;
  FillEvents(size);
  Ask(HEAPTAP_ASK_RESET);
  EXPECT_EQ(Id(), id);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_EVENTS_FULL, 1}}));
  kernel.ring("events").Take();
  FillEvents(size / 2);
  Ask(HEAPTAP_ASK_RESET);
  EXPECT_NE(Id(), id);
}

TEST_F(HostRequests, OneOfSeveralThreadsResets) {
  const heaptap_process& process = Track();
  const uint64_t old_id = process.identity.id;
  kernel.before_lookup = [&](std::string_view map) {
    if (map != "counters") return;
    kernel.before_lookup = nullptr;
    Ask(HEAPTAP_ASK_RESET);
  };
  Ask(HEAPTAP_ASK_RESET);
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_RESET));
  EXPECT_EQ(kernel.map("unnoticed").size(), 1);
  EXPECT_NE(Unnoticed(old_id), nullptr);
}

// --- names -----------------------------------------------------------------------------------------------------------

TEST_F(HostRequests, AThreadHasTheNameThatItGave) {
  const uint64_t id = Track().identity.id;
  const auto name_of = [&](uint32_t tid) {
    const auto* name = kernel.Find<heaptap_thread_name>("names", heaptap_thread_key{id, tid, 0});
    return name == nullptr ? std::string("none") : std::string(name->name) + (name->given == 1 ? "" : " not given");
  };
  const auto give = [&](std::string_view name) {
    const std::string text(name);
    Call(probe_thread_name, text.c_str(), text.size() + 1);
  };
  RunAs(kPid, kPid + 1);
  give("first");
  EXPECT_EQ(name_of(kPid + 1), "first");
  give("second");
  EXPECT_EQ(name_of(kPid + 1), "second");
  give("");
  EXPECT_EQ(name_of(kPid + 1), "");
  give(std::string(100, 'x'));
  EXPECT_EQ(name_of(kPid + 1), std::string(HEAPTAP_HEAP_NAME_LENGTH - 1, 'x'));
  Call(probe_thread_name, 8);
  EXPECT_EQ(name_of(kPid + 1), std::string(HEAPTAP_HEAP_NAME_LENGTH - 1, 'x'));
  EXPECT_EQ(name_of(kPid), "none");
  RunAs(kOther);
  give("stranger");
  EXPECT_EQ(kernel.map("names").size(), 1);
  // The name that was unused for longest goes.
  kernel.map("names").max_entries = 1;
  RunAs(kPid, kPid + 2);
  give("third");
  EXPECT_EQ(name_of(kPid + 1), "none");
  EXPECT_EQ(name_of(kPid + 2), "third");
}

// --- the control block -----------------------------------------------------------------------------------------------

class HostControl : public HostRequests {
 protected:
  HostControl() {
    settings().everyone = 1;
    settings().collector_pid = 4321;
    settings().lg_sample = 17;
    control_.magic = HEAPTAP_CONTROL_MAGIC;
    control_.version = HEAPTAP_CONTROL_VERSION;
    control_.size = sizeof(control_);
    control_.collector_lg_sample = HEAPTAP_NO_RATE;
    RunAs(kOther);
  }
  // The control block after the program has met it.
  heaptap_control Take() {
    Call(take_control, &control_, sizeof(control_));
    heaptap_control after = {};
    EXPECT_TRUE(kernel.ReadMemory(kArguments, &after, sizeof(after)));
    return after;
  }
  void ExpectUntouched(std::string_view why) {
    const heaptap_control after = Take();
    EXPECT_EQ(memcmp(&after, &control_, sizeof(after)), 0) << why;
  }

  heaptap_control control_ = {};
};

TEST_F(HostControl, SaysWhoRecordsAndHowOften) {
  const heaptap_control after = Take();
  EXPECT_EQ(after.collector_pid, 4321);
  EXPECT_EQ(after.collector_lg_sample, 17);
  EXPECT_EQ(after.collector_follows, 1);
  heaptap_control expected = control_;
  expected.collector_pid = 4321;
  expected.collector_lg_sample = 17;
  expected.collector_follows = 1;
  EXPECT_EQ(memcmp(&after, &expected, sizeof(after)), 0) << "nothing else";
}

TEST_F(HostControl, WhatIsLeftAlone) {
  settings().everyone = 0;
  ExpectUntouched("not everyone is recorded");
  settings().everyone = 1;
  settings().collector_pid = 0;
  ExpectUntouched("the collector wants it not to be written");
  settings().collector_pid = 4321;
  control_.collector_pid = 1;
  ExpectUntouched("another collector's");
  control_.collector_pid = 0;
  control_.magic++;
  ExpectUntouched("no control block");
  control_.magic--;
  control_.version--;
  ExpectUntouched("of another version");
  control_.version++;
  control_.size--;
  ExpectUntouched("too short");
  control_.size += 8;
  EXPECT_EQ(Take().collector_pid, 4321) << "longer";
  kernel.is_locked_down = true;
  ExpectUntouched("a kernel that forbids it");
  Call(take_control, 8);
}

// Where probe_any has called it, the start itself comes next.
TEST_F(HostControl, TheStartComesNext) {
  Take();
  EXPECT_EQ(Process(kOther), nullptr);
  kernel.programs[HEAPTAP_PROBE_START_SITE] = probe_start;
  const heaptap_control after = Take();
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_ENTER);
  EXPECT_EQ(events[1].kind, HEAPTAP_EVENT_START);
  EXPECT_EQ(memcmp(events[1].memory, &after, sizeof(after)), 0) << "as it is now";
}

// --- one program for all sites ---------------------------------------------------------------------------------------

uint32_t g_called;
template <uint32_t site>
int Note(pt_regs*) {
  g_called = site;
  return 0;
}

TEST_F(HostRequests, EachSiteHasItsProgram) {
  kernel.programs = {{HEAPTAP_PROBE_DUMP_SITE, Note<HEAPTAP_PROBE_DUMP_SITE>},
                     {HEAPTAP_PROBE_FREE_SITE, Note<HEAPTAP_PROBE_FREE_SITE>},
                     {HEAPTAP_PROBE_SAMPLE_SITE, Note<HEAPTAP_PROBE_SAMPLE_SITE>}};
  for (const uint32_t site : {HEAPTAP_PROBE_DUMP_SITE, HEAPTAP_PROBE_FREE_SITE, HEAPTAP_PROBE_SAMPLE_SITE}) {
    g_called = ~0u;
    kernel.cookie = site;
    Call(probe_any, uint64_t{0});
    EXPECT_EQ(g_called, site);
  }
  g_called = ~0u;
  kernel.cookie = HEAPTAP_PROBE_FREES_SITE;  // has none
  Call(probe_any, uint64_t{0});
  EXPECT_EQ(g_called, ~0u);
}

}  // namespace
}  // namespace heaptap::harness
