// SPDX-License-Identifier: Apache-2.0
//
// A recording that is restricted to control groups (bpf/process.bpf.h), on the simulated kernel.
#include <cstdint>
#include <set>
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

class HostGroups : public MachineTest {
 protected:
  HostGroups() {
    settings().everyone = 1;
    settings().flags = HEAPTAP_PROCESS_FOLLOW;
    settings().groups = 2;
  }
};

TEST_F(HostGroups, WhoEnters) {
  const struct {
    uint32_t groups;
    std::set<uint32_t> of_caller;
    bool enters;
  } cases[] = {{0, {}, true},
               {1, {}, false},
               {1, {0}, true},
               {1, {1}, false},
               {2, {1}, true},
               {2, {2}, false},
               {HEAPTAP_MAX_GROUPS, {HEAPTAP_MAX_GROUPS - 1}, true},
               {HEAPTAP_MAX_GROUPS + 1, {HEAPTAP_MAX_GROUPS}, false}};
  for (const auto& one : cases) {
    settings().groups = one.groups;
    kernel.groups = one.of_caller;
    RunAs(kPid);
    Fire({.address = 0x1000});
    EXPECT_EQ(Process() != nullptr, one.enters) << one.groups;
    kernel.map("processes").Clear();
    kernel.TakeEvents();
  }
  EXPECT_EQ(AllLosses(), Losses{});
}

TEST_F(HostGroups, AnotherProcessSendsNothing) {
  RunAs(kPid);
  heaptap_control control = {};
  Call(probe_start, &control, sizeof(control));
  heaptap_dump_request request = {};
  request.kind = HEAPTAP_DUMP_MANUAL;
  Call(probe_dump, &request, sizeof(request));
  EXPECT_THAT(TakeKinds(), IsEmpty());
  // A process of no group is refused where there is no restriction, instead of waiting.
  settings().groups = 0;
  settings().everyone = 0;
  Call(probe_dump, &request, sizeof(request));
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_DUMP));
}

TEST_F(HostGroups, ARecordedProcessStaysRecordedOutside) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  RunAs(kPid);
  Fire({.address = 0x1000});
  EXPECT_EQ(LiveObjects(id).objects, 1);
}

TEST_F(HostGroups, ChildrenOfAProcessThatHasLeft) {
  Track(kPid, HEAPTAP_PROCESS_FOLLOW);
  Fork(kPid, kChild);
  EXPECT_EQ(Process(kChild), nullptr);
  EXPECT_THAT(TakeKinds(), IsEmpty());
  kernel.groups = {1};
  Fork(kPid, kChild);
  EXPECT_NE(Process(kChild), nullptr);
  EXPECT_THAT(TakeKinds(), ElementsAre(HEAPTAP_EVENT_FORK));
}

TEST_F(HostGroups, AnExecInside) {
  kernel.groups = {0};
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  Exec(kPid);
  ASSERT_NE(Process(), nullptr);
  EXPECT_NE(Id(), id);
  EXPECT_NE(Unnoticed(id), nullptr);
}

// The books of the old image end as at any exec; the new image has none.
TEST_F(HostGroups, AnExecOutside) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  Exec(kPid);
  EXPECT_EQ(Process(), nullptr);
  ASSERT_NE(Unnoticed(id), nullptr);
  EXPECT_EQ(Unnoticed(id)->flags, HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_EXECED);
  const std::vector<heaptap_event> events = kernel.TakeEvents();
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_EXEC);
  EXPECT_EQ(events[0].process_id, HEAPTAP_NO_PROCESS);
  EXPECT_EQ(events[0].argument, id);
  EXPECT_EQ(AllLosses(), Losses{});
}

// Its parent's books go on.
TEST_F(HostGroups, AnExecOfAVforkChildOutside) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FOLLOW).identity.id;
  Fork(kPid, kChild, true);
  ASSERT_NE(Process(kChild), nullptr);
  Exec(kChild);
  EXPECT_EQ(Process(kChild), nullptr);
  EXPECT_EQ(Id(), id);
  EXPECT_EQ(Unnoticed(id), nullptr);
  EXPECT_THAT(TakeKinds(), IsEmpty());
}

}  // namespace
}  // namespace heaptap::harness
