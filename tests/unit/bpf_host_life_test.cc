// SPDX-License-Identifier: Apache-2.0
//
// Fork, exec and exit (bpf/life_programs.bpf.h), and whose books a process has (bpf/process.bpf.h), on the simulated
// kernel.
#include <errno.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kChild = 200;
constexpr uint32_t kGrandchild = 300;
constexpr uint32_t kOther = 400;

class HostLife : public MachineTest {
 protected:
  // A process with everything that children may inherit.
  heaptap_process& TrackParent(uint32_t flags) {
    heaptap_process& parent = Track(kPid, flags);
    parent.triggers = {.first_high_water = 1000, .interval_step = 70, .high_water_percent = 10, .reserved = 0};
    parent.marks = {.high_water_at = 5000, .interval_at = 7000};
    parent.limits = {.max_live = 11, .max_tallies = 12};
    parent.figures = {.live_weight = 1, .allocated_weight = 2, .peak_weight = 3, .live_objects = 4, .tallies = 5};
    parent.costs = {.allocations = 6, .frees = 7, .program_time = 8};
    parent.threads_begun = 9;
    parent.mappings = 10;
    parent.stack_bytes = 512;
    parent.identity.parent_id = 77;
    parent.identity.parent_tgid = 78;
    has_own_figures = true;
    return parent;
  }
  // New books with the settings of the old ones, and nothing else of them.
  void ExpectNewBooks(const heaptap_process& process, const heaptap_process& from, uint32_t flags) {
    EXPECT_NE(process.identity.id, from.identity.id);
    EXPECT_EQ(process.identity.id % 2, 0) << "the programs take even numbers";
    EXPECT_EQ(process.identity.start_time, kernel.time - 1) << "the event comes right after";
    EXPECT_EQ(memcmp(&process.triggers, &from.triggers, sizeof(from.triggers)), 0);
    EXPECT_EQ(process.limits.max_live, from.limits.max_live);
    EXPECT_EQ(process.limits.max_tallies, from.limits.max_tallies);
    EXPECT_EQ(process.marks.high_water_at, 1000);
    EXPECT_EQ(process.marks.interval_at, 70);
    EXPECT_EQ(process.flags, flags);
    const heaptap_figures no_figures = {};
    const heaptap_costs no_costs = {};
    EXPECT_EQ(memcmp(&process.figures, &no_figures, sizeof(no_figures)), 0);
    EXPECT_EQ(memcmp(&process.costs, &no_costs, sizeof(no_costs)), 0);
    EXPECT_EQ(process.threads_begun, 0);
    EXPECT_EQ(process.mappings, 0);
    EXPECT_EQ(process.stack_bytes, 0);
    EXPECT_EQ(process.pending, 0);
  }
  heaptap_event TakeEvent() {
    const std::vector<heaptap_event> events = kernel.TakeEvents();
    EXPECT_EQ(events.size(), 1);
    return events.empty() ? heaptap_event{} : events[0];
  }
};

// --- fork ------------------------------------------------------------------------------------------------------------

constexpr uint32_t kAllFlags = HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED |
                               HEAPTAP_PROCESS_RECORDS | HEAPTAP_PROCESS_RESET;
constexpr uint32_t kInherited = HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED;

TEST_F(HostLife, AFollowedChildHasBooksOfItsOwn) {
  const heaptap_process& parent = TrackParent(kAllFlags);
  Fork(kPid, kChild);
  ASSERT_NE(Process(kChild), nullptr);
  ExpectNewBooks(*Process(kChild), parent, kInherited | HEAPTAP_PROCESS_STARTED);
  EXPECT_EQ(Process(kChild)->identity.parent_id, parent.identity.id);
  EXPECT_EQ(Process(kChild)->identity.parent_tgid, kPid);
  EXPECT_EQ(parent.threads_begun, 9);
  const heaptap_event event = TakeEvent();
  EXPECT_EQ(event.kind, HEAPTAP_EVENT_FORK);
  EXPECT_EQ(event.tgid, kChild);
  EXPECT_EQ(event.process_id, Id(kChild));
  EXPECT_EQ(event.argument, parent.identity.id);
  Fork(kPid, kOther);
  EXPECT_NE(Id(kOther), Id(kChild));
}

TEST_F(HostLife, WhoGetsNoBooks) {
  const struct {
    std::string name;
    uint32_t flags;
    bool shares_memory;
  } cases[] = {{"not followed", HEAPTAP_PROCESS_FIGURES, false},
               {"ignored", HEAPTAP_PROCESS_IGNORED | HEAPTAP_PROCESS_FOLLOW, false},
               {"ignored, vfork", HEAPTAP_PROCESS_IGNORED | HEAPTAP_PROCESS_FOLLOW, true}};
  for (const auto& one : cases) {
    Track(kPid, one.flags);
    Fork(kPid, kChild, one.shares_memory);
    EXPECT_EQ(Process(kChild), nullptr) << one.name;
  }
  Fork(kOther, kChild);
  EXPECT_EQ(Process(kChild), nullptr) << "child of a process that is not recorded";
  EXPECT_THAT(TakeKinds(), IsEmpty());
  EXPECT_EQ(kernel.map("processes").size(), 1);
}

TEST_F(HostLife, AThreadIsCounted) {
  const heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FOLLOW);
  BeginThread(kPid);
  BeginThread(kPid);
  EXPECT_EQ(process.threads_begun, 2);
  BeginThread(kOther);
  EXPECT_EQ(kernel.map("processes").size(), 1);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

TEST_F(HostLife, AVforkChildSharesTheBooks) {
  for (const uint32_t flags : {uint32_t{0}, kInherited}) {
    const uint64_t id = Track(kPid, flags).identity.id;
    Fork(kPid, kChild, true);
    EXPECT_EQ(Id(kChild), id);
    EXPECT_EQ(Process(kChild)->identity.parent_tgid, kPid);
    EXPECT_EQ(Process(kChild)->flags, flags | HEAPTAP_PROCESS_SHARES_PARENT);
    RunAs(kChild);
    Fire({.address = 0x1000 + flags, .serial = 1});
    EXPECT_EQ(LiveObjects(id).objects, 1);
    RunAs(kPid);
    HandOver({{0x1000 + flags, 1}});
    EXPECT_EQ(LiveObjects(id).objects, 0);
  }
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

TEST_F(HostLife, AVforkChildOfAVforkChildSharesTheSameBooks) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  Fork(kPid, kChild, true);
  Fork(kChild, kGrandchild, true);
  EXPECT_EQ(Id(kGrandchild), id);
  EXPECT_EQ(Process(kGrandchild)->identity.parent_tgid, kPid);
  RunAs(kGrandchild);
  Fire({.serial = 1});
  EXPECT_EQ(LiveObjects(id).objects, 1);
  // A fork of the vfork child copies the memory.
  Fork(kChild, kOther, false);
  EXPECT_NE(Id(kOther), id);
  EXPECT_EQ(Process(kOther)->flags, HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_STARTED);
  EXPECT_EQ(Process(kOther)->identity.parent_id, id);
  EXPECT_EQ(TakeEvent().kind, HEAPTAP_EVENT_FORK);
}

// The parent may end or exec while its vfork child lives on, killed or by another thread.
TEST_F(HostLife, AVforkChildWithoutItsParentIsNotRecorded) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  Fork(kPid, kChild, true);
  Exec(kPid);
  RunAs(kChild);
  Fire({.address = 0x1000});
  Free(0x1000);
  Exit(kPid);
  RunAs(kChild);
  Fire({.address = 0x1000});
  EXPECT_EQ(Allocated(id).objects, 0);
  EXPECT_EQ(kernel.map("live").size(), 0);
}

TEST_F(HostLife, NoRoomForAChildIsALoss) {
  for (const bool shares_memory : {false, true}) {
    Track(kPid, HEAPTAP_PROCESS_FOLLOW);
    kernel.map("processes").max_entries = 1;
    Fork(kPid, kChild, shares_memory);
    EXPECT_EQ(LossesOf(0), (Losses{{HEAPTAP_LOSS_PROCESSES_FULL, 1u + shares_memory}}));
    EXPECT_EQ(Process(kChild), nullptr);
  }
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

// The PID of a process whose end nobody noticed.
TEST_F(HostLife, AForkTakesTheEntryOfAnEarlierProcess) {
  Track(kChild, HEAPTAP_PROCESS_IGNORED);
  Track(kPid, HEAPTAP_PROCESS_FOLLOW);
  Fork(kPid, kChild);
  EXPECT_EQ(Process(kChild)->flags, HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_STARTED);
  EXPECT_EQ(Process(kChild)->identity.parent_id, Id(kPid));
}

// --- exec ------------------------------------------------------------------------------------------------------------

TEST_F(HostLife, ExecBeginsNewBooks) {
  const heaptap_process before = TrackParent(kAllFlags);
  Process()->pending = 0;
  kernel.comm = "new image";
  Exec(kPid);
  ExpectNewBooks(*Process(), before, kInherited);
  EXPECT_EQ(Process()->identity.parent_id, 77);
  EXPECT_EQ(Process()->identity.parent_tgid, 78);
  const heaptap_event event = TakeEvent();
  EXPECT_EQ(event.kind, HEAPTAP_EVENT_EXEC);
  EXPECT_EQ(event.tgid, kPid);
  EXPECT_EQ(event.process_id, Id());
  EXPECT_EQ(event.argument, before.identity.id);
  EXPECT_STREQ(event.comm, "new image");
  const heaptap_process* ended = Unnoticed(before.identity.id);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->flags, kAllFlags | HEAPTAP_PROCESS_EXECED);
  EXPECT_EQ(ended->identity.parent_tgid, kPid);
  EXPECT_EQ(ended->identity.parent_id, 77);
  EXPECT_EQ(ended->figures.peak_weight, 3);
  EXPECT_EQ(ended->limits.max_live, 11);
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostLife, ExecOfEachKind) {
  const struct {
    std::string name;
    uint32_t flags;
    bool is_child;  // by vfork
    bool is_recorded;
    bool has_event;
  } cases[] = {{"followed", HEAPTAP_PROCESS_FOLLOW, false, true, true},
               {"not followed", 0, false, true, true},
               {"ignored", HEAPTAP_PROCESS_IGNORED | HEAPTAP_PROCESS_FOLLOW, false, false, false},
               {"followed vfork child", HEAPTAP_PROCESS_FOLLOW, true, true, true},
               {"vfork child that is not followed", 0, true, false, false}};
  for (const auto& one : cases) {
    kernel.map("processes").Clear();
    kernel.map("unnoticed").Clear();
    const uint64_t parent_id = Track(kPid, one.flags).identity.id;
    if (one.is_child) Fork(kPid, kChild, true);
    const uint32_t pid = one.is_child ? kChild : kPid;
    Exec(pid);
    EXPECT_EQ(Process(pid) != nullptr, one.is_recorded) << one.name;
    if (one.is_recorded) {
      EXPECT_NE(Id(pid), parent_id) << one.name;
      EXPECT_EQ(Process(pid)->flags, one.flags) << one.name;
    }
    const std::vector<heaptap_event> events = kernel.TakeEvents();
    ASSERT_EQ(events.size(), one.has_event) << one.name;
    if (one.has_event) {
      EXPECT_EQ(events[0].argument, one.is_child ? 0 : parent_id) << "the parent's books go on";
    }
    EXPECT_EQ(kernel.map("unnoticed").size(), one.has_event && !one.is_child) << one.name;
    if (one.is_child) {
      EXPECT_EQ(Id(kPid), parent_id) << one.name;
    }
  }
  Exec(kOther);
  EXPECT_EQ(Process(kOther), nullptr);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

TEST_F(HostLife, FreesThatWereNotHandedOverBeforeExecAreALoss) {
  heaptap_process& process = Track();
  const uint64_t id = process.identity.id;
  Fire({.address = 0x1000, .serial = 1});
  EXPECT_EQ(process.pending, kPending);
  Hold(3, {{0x1000, 1}});
  Exec(kPid);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_FREES_UNREAD, 1}}));
  EXPECT_EQ(LiveObjects(id).objects, 1);
}

TEST_F(HostLife, BeforeExecTheFreesAreTaken) {
  heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES);
  const uint64_t id = process.identity.id;
  Fire({.address = 0x1000, .serial = 1});
  Hold(3, {{0x1000, 1}});
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(LiveObjects(id).objects, 0);
  EXPECT_EQ(process.figures.live_objects, 0);
  EXPECT_EQ(process.figures.live_weight, 0);
  EXPECT_EQ(process.pending, 0);
  Exec(kPid);
  EXPECT_EQ(AllLosses(), Losses{});
  // A vfork child leaves its parent's frees alone.
  Fire({.address = 0x2000, .serial = 2});
  Hold(3, {{0x2000, 2}});
  Fork(kPid, kChild, true);
  RunAs(kChild);
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(LiveObjects(Id(kPid)).objects, 1);
  EXPECT_EQ(Process(kPid)->pending, kPending);
  RunAs(kOther);
  EXPECT_EQ(process_before_exec(nullptr), 0);
}

// A process whose memory cannot be read keeps the word of its frees, so that they are counted as unread.
TEST_F(HostLife, BeforeExecFreesThatCannotBeReadStay) {
  heaptap_process& process = Track();
  const uint64_t id = process.identity.id;
  process.pending = 8;
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(process.pending, 8);
  Exec(kPid);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_FREES_UNREAD, 1}}));
}

}  // namespace
}  // namespace heaptap::harness
