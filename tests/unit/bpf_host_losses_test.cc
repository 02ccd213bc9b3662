// SPDX-License-Identifier: Apache-2.0
//
// What does not fit is a counted loss: for each reason the event that counts exactly that one, each map at its minimum,
// and each update failing once, on the simulated kernel.
#include <errno.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

constexpr uint32_t kChild = 200;
constexpr uint32_t kOther = 400;

// --- each reason -----------------------------------------------------------------------------------------------------

struct Cause {
  heaptap_loss_reason reason;
  std::string name;
  std::function<void(Machine&)> act;  // on a machine with one process, whose samples have figures and records
  bool is_nobodys = false;            // counted under process id 0
  uint64_t weight = 0;
  Losses others = {};  // that come with it
};

const std::vector<Cause>& Causes() {
  static const std::vector<Cause> causes = {
      {HEAPTAP_LOSS_LIVE_FULL, "LiveFull",
       [](Machine& machine) {
         machine.kernel.map("live").max_entries = 0;
         machine.Fire({});
       },
       false, 640},
      {HEAPTAP_LOSS_TALLIES_FULL, "TalliesFull",
       [](Machine& machine) {
         machine.kernel.map("tallies").max_entries = 0;
         machine.Fire({});
       },
       false, 640},
      {HEAPTAP_LOSS_BAD_SAMPLE, "BadSample", [](Machine& machine) { machine.Fire({.size = 0}); }},
      {HEAPTAP_LOSS_STACKS_FULL, "StacksFull",
       [](Machine& machine) {
         machine.kernel.map("stacks").max_entries = 0;
         machine.Fire({});
       },
       false, 640},
      {HEAPTAP_LOSS_STACK_COLLISION, "StackCollision",
       [](Machine& machine) {
         machine.Fire({.address = 0x2000});
         machine.kernel.Find<heaptap_stack>("stacks", machine.StackId(0x2000))->count++;
         machine.RunAs(kPid, kPid + 1);
         machine.Fire({});
       },
       false, 640},
      {HEAPTAP_LOSS_SCRATCH_BUSY, "ScratchBusy",
       [](Machine& machine) {
         machine.ClaimScratch(true);
         machine.Fire({});
         machine.ClaimScratch(false);
       },
       false, 640},
      {HEAPTAP_LOSS_MISSED_FREE, "MissedFree",
       [](Machine& machine) {
         machine.Alloc({});
         machine.Alloc({});
       },
       false, 640},
      {HEAPTAP_LOSS_EVENTS_FULL, "EventsFull",
       [](Machine& machine) {
         machine.kernel.ring("events").bytes = 64;
         machine.Exit(kPid);
       }},
      {HEAPTAP_LOSS_PROCESSES_FULL, "ProcessesFull",
       [](Machine& machine) {
         machine.kernel.map("processes").max_entries = 1;
         machine.Fork(kPid, kChild, true);
       },
       true},
      {HEAPTAP_LOSS_FILES_FULL, "FilesFull",
       [](Machine& machine) {
         machine.kernel.map("files").max_entries = 0;
         machine.kernel.mappings[0].file = heaptap_file_key{1, 2, 3};
         machine.Fire({});
       }},
      {HEAPTAP_LOSS_LIVE_SHARE, "LiveShare",
       [](Machine& machine) {
         machine.Process()->limits.max_live = 1;
         machine.Fire({.address = 0x2000});
         machine.Fire({});
       },
       false, 640},
      {HEAPTAP_LOSS_TALLIES_SHARE, "TalliesShare",
       [](Machine& machine) {
         machine.Process()->limits.max_tallies = 1;
         machine.Fire({.address = 0x2000});
         machine.Fire({.stack = 2});
       },
       false, 640},
      {HEAPTAP_LOSS_FREES_UNREAD, "FreesUnread",
       [](Machine& machine) {
         machine.Process()->pending = 8;
         machine.Exit(kPid);
       }},
      {HEAPTAP_LOSS_NO_MEMORY, "NoMemory",
       [](Machine& machine) {
         heaptap_dump_request request = {};
         request.kind = HEAPTAP_ASK_LOST;
         request.argument = 512;
         machine.Call(probe_dump, &request, sizeof(request));
       },
       false, 512},
      {HEAPTAP_LOSS_PROCESSES_SHARE, "ProcessesShare",
       [](Machine& machine) {
         machine.settings().everyone = 1;
         machine.settings().processes_room = 1;
         machine.RunAs(kOther);
         machine.Fire({});
       },
       true},
  };
  return causes;
}

class HostLoss : public MachineTest, public ::testing::WithParamInterface<Cause> {};

TEST_P(HostLoss, IsCountedAloneAndOnce) {
  const Cause& cause = GetParam();
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_RECORDS).identity.id;
  cause.act(*this);
  // What a user could not begin is the loss of that user: 1000, by the rule of bpf/users.bpf.h.
  constexpr uint32_t kSlot = 1 + 1000 % 1023;
  const uint64_t of_user = HEAPTAP_LOSSES_OF_USER | kSlot;
  const bool is_users = cause.reason == HEAPTAP_LOSS_PROCESSES_SHARE;
  const uint64_t loser = is_users ? of_user : cause.is_nobodys ? 0 : id;
  EXPECT_EQ(AllLosses(), (Losses{{cause.reason, 1}}));
  const auto* loss = kernel.Find<heaptap_loss>("losses", heaptap_loss_key{loser, cause.reason, 0});
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->events, 1);
  EXPECT_EQ(loss->weight, cause.weight);
}

// A process whose losses find no room adds them to those of no process.
TEST_P(HostLoss, WithoutRoomIsNobodys) {
  const Cause& cause = GetParam();
  Track(kPid, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_RECORDS);
  kernel.map("losses").max_entries = 0;
  cause.act(*this);
  EXPECT_EQ(LossesOf(0), (Losses{{cause.reason, 1}}));
  const auto* loss = kernel.Find<heaptap_loss>("losses", heaptap_loss_key{0, cause.reason, 0});
  EXPECT_EQ(loss->weight, cause.weight);
}

INSTANTIATE_TEST_SUITE_P(, HostLoss, ::testing::ValuesIn(Causes()), [](const auto& info) { return info.param.name; });

TEST(HostLosses, EachReasonHasACause) {
  std::vector<bool> has_cause(HEAPTAP_LOSS_REASONS);
  has_cause[HEAPTAP_LOSS_BEGINNING] = true;  // the collector counts it
  for (const Cause& cause : Causes()) has_cause[cause.reason] = true;
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) EXPECT_TRUE(has_cause[reason]);
}

// --- whatever fails --------------------------------------------------------------------------------------------------

class HostWhole : public MachineTest {};

// A little of everything: two processes, threads, heaps, records, frees of all kinds, a vfork child, a reset, exec,
// exit.
void Live(Machine& machine) {
  machine.settings().everyone = 1;
  machine.settings().flags = HEAPTAP_PROCESS_FIGURES;
  machine.kernel.WriteMemory(kArguments, "heap\0", 5);
  for (const uint32_t pid : {kPid, kOther}) {
    machine.RunAs(pid);
    for (uint64_t i = 1; i <= 6; i++) {
      machine.RunAs(pid, pid + static_cast<uint32_t>(i % 2));
      machine.Fire({.address = 0x1000 * i, .serial = i, .stack = i / 2});
    }
    if (heaptap_process* process = machine.Process(pid)) process->flags |= HEAPTAP_PROCESS_FOLLOW;
    if (pid == kOther && machine.Process(pid) != nullptr) machine.Process(pid)->flags |= HEAPTAP_PROCESS_RECORDS;
    machine.HandOver({{0x1000, 1}, {0x2000, 2}});
    machine.HandOver({{0x3000, 3}}, 1, 8);
    machine.Fire({.address = 0x1000, .serial = 7, .stack = 5, .frees = {{0x4000, 4}}});
    machine.Fire({.address = 0x5000, .serial = 8, .stack = 6, .frees = {{0x5000, 5}, {0x6000, 6}}});
    machine.Alloc({.address = 0x9000, .heap = uint64_t{3} << 48 | 5});
    machine.Alloc({.address = 0x8000, .stack = 9});
    machine.Alloc({.address = 0x8000, .stack = 9});
    machine.Free(0x8000);
    machine.Fork(pid, pid + 50, true);
    machine.RunAs(pid + 50);
    machine.Fire({.address = 0xa000, .serial = 9});
    machine.Exec(pid + 50);
    machine.Fire({.address = 0xb000, .size = 0, .serial = 1});
    machine.Fire({.address = 0xb000, .serial = 2});
    machine.Exit(pid + 50, {.tid = pid + 50});
    sweep(nullptr);
    machine.Exit(pid, {.tid = pid + 1, .other_threads = 1});
    machine.RunAs(pid);
  }
  machine.Exit(kOther, {.tid = kOther});
}

// Without a failure nothing is lost but what the program does wrong.
TEST_F(HostWhole, NothingIsLostWhereThereIsRoom) {
  harness::Live(*this);
  EXPECT_EQ(AllLosses(), (Losses{{HEAPTAP_LOSS_BAD_SAMPLE, 2}, {HEAPTAP_LOSS_MISSED_FREE, 2}}));
  EXPECT_GT(kernel.updates, 60);
}

class HostFull : public ::testing::TestWithParam<std::string> {};

// With as few entries as may be, up to as many as are needed.
TEST_P(HostFull, TheBooksBalance) {
  for (uint64_t entries = 0; entries <= 8; entries++) {
    Machine machine;
    machine.kernel.map(GetParam()).max_entries = entries;
    harness::Live(machine);
    machine.ExpectBalanced();
    if (HasFailure()) FAIL() << entries << " entries";
  }
}

INSTANTIATE_TEST_SUITE_P(, HostFull,
                         ::testing::Values("processes", "stacks", "live", "tallies", "losses", "unnoticed", "names"),
                         [](const auto& info) { return info.param; });

class HostFailing : public ::testing::TestWithParam<long> {};

// The first update fails, then only the second one, and so on; then all from there on.
TEST_P(HostFailing, TheBooksBalance) {
  for (const uint64_t count : {uint64_t{1}, ~uint64_t{0}}) {
    for (uint64_t first = 1;; first++) {
      Machine machine;
      machine.kernel.failure = {.first = first, .count = count, .error = GetParam()};
      harness::Live(machine);
      machine.ExpectBalanced();
      if (HasFailure()) FAIL() << "from the update " << first << " on";
      if (first > machine.kernel.updates) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, HostFailing, ::testing::Values(-ENOMEM, -E2BIG, -EBUSY),
                         [](const auto& info) { return "Error" + std::to_string(-info.param); });

// The same for the events.
TEST(HostLosses, TheBooksBalanceHoweverFewEventsThereIsRoomFor) {
  for (uint64_t events = 0; events < 10; events++) {
    Machine machine;
    machine.kernel.ring("events").bytes = events * (sizeof(heaptap_event) + 8);
    harness::Live(machine);
    machine.ExpectBalanced();
    const uint64_t lost = machine.AllLosses()[HEAPTAP_LOSS_EVENTS_FULL];
    EXPECT_EQ(machine.Counter(HEAPTAP_COUNTER_EVENTS_LOST), lost);
    EXPECT_EQ(machine.TakeKinds().size() + lost, 7);
  }
}

}  // namespace
}  // namespace heaptap::harness
