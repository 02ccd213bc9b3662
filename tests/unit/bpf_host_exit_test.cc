// SPDX-License-Identifier: Apache-2.0
//
// Ends of threads and processes, starts, mappings (bpf/life_programs.bpf.h), and processes that enter by themselves
// (bpf/process.bpf.h), on the simulated kernel.
#include <errno.h>
#include <signal.h>

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

class HostExit : public MachineTest {
 protected:
  heaptap_event TakeEvent() {
    const std::vector<heaptap_event> events = kernel.TakeEvents();
    EXPECT_EQ(events.size(), 1);
    return events.empty() ? heaptap_event{} : events[0];
  }
  const heaptap_thread_name* NameOf(uint64_t id, uint32_t tid) {
    return kernel.Find<heaptap_thread_name>("names", heaptap_thread_key{id, tid, 0});
  }
};

TEST_F(HostExit, TheStatusOfTheProcess) {
  const struct {
    std::string name;
    Ending ending;
    uint64_t argument;
  } cases[] = {{"exit status", {.code = 7 << 8}, 7 << 8},
               {"exit_group", {.code = 1 << 8, .is_of_group = true, .group_code = 9 << 8}, 9 << 8},
               {"killed", {.code = 0, .is_of_group = true, .group_code = SIGKILL}, SIGKILL},
               {"not of the group", {.code = 3 << 8, .is_of_group = false, .group_code = 9 << 8}, 3 << 8},
               {"OOM", {.code = SIGKILL, .is_by_oom_kill = true}, SIGKILL | HEAPTAP_EXIT_BY_OOM_KILL},
               {"core dumped", {.code = SIGSEGV | 0x80}, SIGSEGV | 0x80},
               {"odd", {.code = -1}, 0xffffffff}};
  for (const auto& one : cases) {
    heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FOLLOW);
    process.figures.peak_weight = 12345;
    const uint64_t id = process.identity.id;
    kernel.comm = "the end";
    Exit(kPid, one.ending);
    EXPECT_EQ(Process(), nullptr);
    const heaptap_event event = TakeEvent();
    EXPECT_EQ(event.kind, HEAPTAP_EVENT_EXIT) << one.name;
    EXPECT_EQ(event.tgid, kPid);
    EXPECT_EQ(event.process_id, id);
    EXPECT_EQ(event.argument, one.argument) << one.name;
    EXPECT_EQ(event.peak_weight, 12345);
    EXPECT_STREQ(event.comm, "the end");
    const heaptap_process* ended = Unnoticed(id);
    ASSERT_NE(ended, nullptr);
    EXPECT_EQ(ended->ended, static_cast<uint32_t>(one.argument)) << one.name;
    EXPECT_EQ(ended->by_oom_kill, one.ending.is_by_oom_kill) << one.name;
    EXPECT_EQ(ended->flags, HEAPTAP_PROCESS_FOLLOW);
    EXPECT_EQ(ended->identity.parent_tgid, kPid);
  }
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostExit, AProcessEndsWithItsLastThread) {
  const uint64_t id = Track().identity.id;
  Exit(kPid, {.tid = kPid + 1, .other_threads = 2});
  Exit(kPid, {.tid = kPid, .other_threads = 1});
  EXPECT_EQ(Id(), id);
  EXPECT_THAT(TakeKinds(), IsEmpty());
  Exit(kPid, {.tid = kPid + 2});
  EXPECT_EQ(Process(), nullptr);
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_EXIT));
  // Two threads may both see themselves as the last.
  Exit(kPid, {.tid = kPid + 3});
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

// Its books were closed when it became ignored. The event says that its mappings are no longer needed.
TEST_F(HostExit, AnIgnoredProcessHasNoBooksThatEnd) {
  Track();
  Process()->flags |= HEAPTAP_PROCESS_IGNORED;
  Exit(kPid);
  EXPECT_EQ(Process(), nullptr);
  const heaptap_event event = TakeEvent();
  EXPECT_EQ(event.kind, HEAPTAP_EVENT_EXIT);
  EXPECT_EQ(event.tgid, kPid);
  EXPECT_EQ(event.process_id, HEAPTAP_NO_PROCESS);
  EXPECT_EQ(kernel.map("unnoticed").size(), 0);
}

TEST_F(HostExit, TwoLastThreadsEndTheProcessOnce) {
  Track();
  kernel.before_update = [&](std::string_view map) {
    if (map != "names") return;
    kernel.before_update = nullptr;
    Exit(kPid, {.tid = kPid + 1});
  };
  Exit(kPid, {.tid = kPid + 2});
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(kernel.map("unnoticed").size(), 1);
}

TEST_F(HostExit, AThreadLeavesItsName) {
  const uint64_t id = Track().identity.id;
  kernel.comm = "worker";
  Exit(kPid, {.tid = kPid + 1, .other_threads = 1});
  ASSERT_NE(NameOf(id, kPid + 1), nullptr);
  EXPECT_STREQ(NameOf(id, kPid + 1)->name, "worker");
  EXPECT_EQ(NameOf(id, kPid + 1)->given, 0);
  // The name that the program gave stays.
  RunAs(kPid, kPid + 2);
  const char name[] = "given";
  Call(probe_thread_name, name, sizeof(name));
  Exit(kPid, {.tid = kPid + 2, .other_threads = 1});
  EXPECT_STREQ(NameOf(id, kPid + 2)->name, "given");
  Exit(kOther, {.tid = kOther});
  EXPECT_EQ(kernel.map("names").size(), 2);
}

TEST_F(HostExit, AVforkChildEndsNoBooks) {
  heaptap_process& parent = Track();
  const uint64_t id = parent.identity.id;
  Fire({.address = 0x1000, .serial = 1});
  Hold(1, {{0x1000, 1}});
  Fork(kPid, kChild, true);
  Process(kChild)->pending = kPending;
  Exit(kChild, {.tid = kChild, .code = 5 << 8});
  EXPECT_EQ(Process(kChild), nullptr);
  EXPECT_EQ(Id(kPid), id);
  const heaptap_event event = TakeEvent();
  EXPECT_EQ(event.kind, HEAPTAP_EVENT_EXIT);
  EXPECT_EQ(event.tgid, kChild);
  EXPECT_EQ(event.process_id, 0);
  EXPECT_EQ(event.argument, 5 << 8);
  EXPECT_EQ(kernel.map("unnoticed").size(), 0);
  EXPECT_EQ(LiveObjects(id).objects, 1) << "the frees are the parent's to hand over";
}

TEST_F(HostExit, AnExitTakesTheFreesThatWereHeldBack) {
  heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES);
  const uint64_t id = process.identity.id;
  for (uint64_t i = 1; i <= 5; i++) Fire({.address = 0x1000 * i, .serial = i});
  Hold(1, {{0x1000, 1}});
  Hold(4, {{0x2000, 2}, {0x3000, 3}});
  Exit(kPid);
  EXPECT_EQ(LiveObjects(id).objects, 2);
  EXPECT_EQ(Unnoticed(id)->figures.live_objects, 2);
  EXPECT_EQ(Unnoticed(id)->figures.live_weight, 1280);
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostExit, MemoryThatIsGoneIsALoss) {
  heaptap_process& process = Track();
  const uint64_t id = process.identity.id;
  process.pending = 8;
  Exit(kPid, {.code = SIGKILL});
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_FREES_UNREAD, 1}}));
}

// The end is in `unnoticed` or in `events`; in neither, it is a loss.
TEST_F(HostExit, AnEndThatIsKeptNowhereIsALoss) {
  for (const bool by_exec : {false, true}) {
    for (const bool has_event : {false, true}) {
      for (const bool is_saved : {false, true}) {
        kernel.map("losses").ForEach<heaptap_loss>([](heaptap_loss& loss) { loss = {}; });
        kernel.map("processes").Clear();
        kernel.map("unnoticed").Clear();
        const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
        kernel.ring("events").bytes = has_event ? 1 << 20 : 64;
        kernel.map("unnoticed").max_entries = is_saved ? 1 : 0;
        by_exec ? Exec(kPid) : Exit(kPid);
        EXPECT_EQ(Unnoticed(id) != nullptr, is_saved);
        EXPECT_EQ(TakeKinds().size(), has_event);
        Losses losses;
        if (!has_event) losses[HEAPTAP_LOSS_EVENTS_FULL] = 1;
        if (!has_event && !is_saved) losses[HEAPTAP_LOSS_PROCESSES_FULL] = 1;
        EXPECT_EQ(AllLosses(), losses) << by_exec << has_event << is_saved;
      }
    }
  }
}

// --- lost events -----------------------------------------------------------------------------------------------------

// When the first event of a process is lost, the collector does not know the id. The loss counts under no process.
TEST_F(HostExit, ALostEventIsCountedWhereItIsSeen) {
  settings().everyone = 1;
  kernel.ring("events").bytes = 64;
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  Fork(kPid, kChild);
  EXPECT_EQ(LossesOf(0), (Losses{{HEAPTAP_LOSS_EVENTS_FULL, 1}}));
  Exec(kChild);
  EXPECT_EQ(LossesOf(0), (Losses{{HEAPTAP_LOSS_EVENTS_FULL, 2}}));
  RunAs(kOther);
  Fire({});
  EXPECT_EQ(LossesOf(0), (Losses{{HEAPTAP_LOSS_EVENTS_FULL, 3}}));
  Exit(kPid);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_EVENTS_FULL, 1}}));
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_EVENTS_LOST), 4);
}

// --- start and entering ----------------------------------------------------------------------------------------------

TEST_F(HostExit, AStartBringsTheControlBlock) {
  const uint64_t id = Track().identity.id;
  heaptap_control control = {};
  memset(&control, 0x5a, sizeof(control));
  Call(probe_start, &control, sizeof(control));
  heaptap_event event = TakeEvent();
  EXPECT_EQ(event.kind, HEAPTAP_EVENT_START);
  EXPECT_EQ(event.process_id, id);
  EXPECT_EQ(event.tgid, kPid);
  EXPECT_EQ(event.argument, kArguments);
  EXPECT_EQ(event.peak_weight, 0);
  EXPECT_EQ(memcmp(event.memory, &control, sizeof(control)), 0);
  Call(probe_start, 8);
  event = TakeEvent();
  EXPECT_THAT(std::vector<uint8_t>(event.memory, event.memory + sizeof(event.memory)), Each(0));
  Process()->flags = HEAPTAP_PROCESS_IGNORED;
  Call(probe_start, kArguments);
  RunAs(kOther);
  Call(probe_start, kArguments);
  EXPECT_THAT(TakeKinds(), IsEmpty());
  EXPECT_EQ(Process(kOther), nullptr);
}

TEST_F(HostExit, AProcessEntersIfTheSettingsWantIt) {
  settings() = {.everyone = 1,
                .flags = HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED,
                .limits = {.max_live = 5, .max_tallies = 6},
                .triggers = {.first_high_water = 1000, .interval_step = 70, .high_water_percent = 10, .reserved = 0},
                .lg_sample = 0,
                .collector_pid = 0,
                .live_room = 0,
                .tallies_room = 0,
                .processes_room = 0,
                .groups = 0,
                .reserved = 0};
  RunAs(kOther);
  Fire({.address = 0x1000});
  const heaptap_process* process = Process(kOther);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->flags, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED);
  EXPECT_EQ(process->limits.max_live, 5);
  EXPECT_EQ(process->limits.max_tallies, 6);
  EXPECT_EQ(process->triggers.high_water_percent, 10);
  EXPECT_EQ(process->marks.high_water_at, 1000);
  EXPECT_EQ(process->marks.interval_at, 700) << "640 bytes were allocated";
  EXPECT_EQ(process->identity.id, 2);
  EXPECT_EQ(process->identity.parent_id, 0);
  EXPECT_EQ(process->identity.start_time, 1);
  EXPECT_EQ(LiveObjects(2).objects, 1);
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_ENTER);
  EXPECT_EQ(events[0].process_id, 2);
  EXPECT_EQ(events[0].tgid, kOther);
  EXPECT_EQ(events[1].kind, HEAPTAP_EVENT_INTERVAL);
  Fire({.address = 0x2000});
  EXPECT_EQ(kernel.map("processes").size(), 1);
}

TEST_F(HostExit, WhoDoesNotEnter) {
  RunAs(kOther);
  Fire({});
  EXPECT_EQ(Process(kOther), nullptr) << "nobody asked for everyone";
  settings().everyone = 1;
  Free(0x1000);
  HandOver({{0x1000, 1}});
  EXPECT_EQ(Process(kOther), nullptr) << "a free alone is no reason";
  Track(kPid, HEAPTAP_PROCESS_IGNORED);
  Fire({});
  Alloc({});
  EXPECT_EQ(Process(kPid)->flags, HEAPTAP_PROCESS_IGNORED);
  EXPECT_EQ(kernel.map("live").size(), 0);
  EXPECT_EQ(AllLosses(), Losses{});
  kernel.map("processes").max_entries = 1;
  RunAs(kOther);
  Fire({});
  EXPECT_EQ(LossesOf(0), (Losses{{HEAPTAP_LOSS_PROCESSES_FULL, 1}}));
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

// Another thread of the process, or the collector, enters it at the same time.
TEST_F(HostExit, AProcessEntersOnce) {
  settings().everyone = 1;
  for (const uint32_t flags : {uint32_t{0}, uint32_t{HEAPTAP_PROCESS_IGNORED}}) {
    kernel.map("processes").Clear();
    kernel.before_update = [&](std::string_view map) {
      if (map == "processes") Track(kOther, flags);
    };
    RunAs(kOther);
    Fire({.address = 0x1000 + flags});
    kernel.before_update = nullptr;
    EXPECT_EQ(Id(kOther) % 2, 1) << "that of the collector";
    EXPECT_EQ(LiveObjects(Id(kOther)).objects, flags == 0);
    EXPECT_EQ(AllLosses(), Losses{});
    EXPECT_THAT(TakeKinds(), IsEmpty());
  }
}

// --- frees and mappings ----------------------------------------------------------------------------------------------

TEST_F(HostExit, AnIgnoredProcessFreesNothing) {
  const uint64_t id = Track().identity.id;
  Fire({.address = 0x1000, .serial = 1});
  Process()->flags = HEAPTAP_PROCESS_IGNORED;
  HandOver({{0x1000, 1}});
  Free(0x1000);
  EXPECT_EQ(LiveObjects(id).objects, 1);
}

TEST_F(HostExit, AMappingIsCounted) {
  const heaptap_process& process = Track();
  Fork(kPid, kChild, true);
  EXPECT_EQ(process_map(nullptr), 0);
  EXPECT_EQ(process.mappings, 1);
  RunAs(kChild);
  EXPECT_EQ(process_map(nullptr), 0);
  EXPECT_EQ(process.mappings, 2) << "the memory is the parent's";
  EXPECT_EQ(Process(kChild)->mappings, 0);
  RunAs(kOther);
  EXPECT_EQ(process_map(nullptr), 0);
  EXPECT_EQ(process.mappings, 2);
}

}  // namespace
}  // namespace heaptap::harness
