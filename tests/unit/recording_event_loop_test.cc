// SPDX-License-Identifier: Apache-2.0
//
// Events that arrive together.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/recording/event_loop.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class EventLoopTest : public RecorderTest {
 protected:
  void Trigger(heaptap_event_kind kind, pid_t pid, uint64_t process_id) {
    kernel_.Send(kernel_.MakeEvent(kind, pid, process_id, "program"));
  }
};

TEST_F(EventLoopTest, OneDumpForSeveralTriggersOfAKind) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  for (int i = 0; i < 3; i++) Trigger(HEAPTAP_EVENT_HIGH_WATER, kParent, parent);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), SizeIs(1));
  Trigger(HEAPTAP_EVENT_INTERVAL, kParent, parent);
  Trigger(HEAPTAP_EVENT_HIGH_WATER, kParent, parent);
  Trigger(HEAPTAP_EVENT_INTERVAL, kParent, parent);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), SizeIs(3));
  const profile::CollectorFigures figures = recorder_->Figures({});
  EXPECT_EQ(figures.dumps.at("high_water"), 2u);
  EXPECT_EQ(figures.dumps.at("interval"), 1u);
}

TEST_F(EventLoopTest, TriggersOfSeveralProcesses) {
  const uint64_t parent = RecordParent();
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(parent, kBytes);
  kernel_.Sample(child, kBytes);
  Trigger(HEAPTAP_EVENT_HIGH_WATER, kParent, parent);
  Trigger(HEAPTAP_EVENT_HIGH_WATER, kChild, child);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), SizeIs(1));
  EXPECT_THAT(Dumps(kChild), SizeIs(1));
}

// Forks, executes a program twice, forks again, and ends, before the collector looks.
TEST_F(EventLoopTest, AWholeLifeInOneBatch) {
  const uint64_t parent = RecordParent();
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(child, kBytes);
  const uint64_t first = kernel_.Exec(kChild, "first");
  kernel_.Sample(first, 2 * kBytes);
  const uint64_t second = kernel_.Exec(kChild, "second");
  kernel_.Sample(second, 3 * kBytes);
  const uint64_t grandchild = kernel_.Fork(second, kOther, "second");
  kernel_.Sample(grandchild, 4 * kBytes);
  kernel_.Exit(kChild, "second");
  kernel_.Exit(kOther, "second");
  for (int pumps = 0; pumps < 3; pumps++) recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, 3 * kBytes)));
  EXPECT_THAT(Dumps(kOther), ElementsAre(Text(1, 4 * kBytes)));
  for (const uint64_t process_id : {child, first, second, grandchild}) EXPECT_FALSE(kernel_.HasBooks(process_id));
  EXPECT_TRUE(recorder_->IsRecorded(kParent));
}

// Until its exec, a child of vfork samples into the books of its parent, which stay open.
TEST_F(EventLoopTest, AnExecAfterAVfork) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  const uint64_t program = kernel_.Fork(parent, kChild, "program");
  kernel_.events.back() = kernel_.MakeEvent(HEAPTAP_EVENT_EXEC, kChild, program, "program", 0);
  kernel_.Sample(program, 2 * kBytes);
  for (int pumps = 0; pumps < 3; pumps++) recorder_->Pump();
  EXPECT_TRUE(recorder_->IsRecorded(kParent));
  kernel_.Exit(kChild, "program");
  kernel_.Exit(kParent, "parent");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, 2 * kBytes)));
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, kBytes)));
}

// The end of the one arrives after the beginning of the other.
TEST_F(EventLoopTest, APidThatIsUsedAgain) {
  const uint64_t parent = RecordParent();
  const uint64_t first = kernel_.Fork(parent, kChild, "first");
  kernel_.Sample(first, kBytes);
  recorder_->Pump();
  kernel_.Exit(kChild, "first");
  const uint64_t second = kernel_.Fork(parent, kChild, "second");
  kernel_.Sample(second, 2 * kBytes);
  std::swap(kernel_.events[0], kernel_.events[1]);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, kBytes)));
  EXPECT_TRUE(recorder_->IsRecorded(kChild));
  kernel_.Exit(kChild, "second");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), UnorderedElementsAre(Text(1, kBytes), Text(1, 2 * kBytes)));
}

// Mappings and raw stacks come through other buffers than events.
TEST_F(EventLoopTest, RawStacksSeeTheMappingsOfTheirTime) {
  FakeClock clock;
  const uint64_t parent = RecordParent();
  const uint64_t now = bpf::SimulatedKernel::Now();
  bpf::MappingEvent exec = Mapping(kParent, now + 40);
  exec.kind = bpf::MappingEvent::kExec;
  kernel_.mappings = {exec, Mapping(kParent, now + 20)};
  for (const uint64_t time : {now + 50, now + 10, now + 30}) {
    bpf::RawStack raw = {};
    raw.header.process_id = parent;
    raw.header.stack_id = time;
    raw.header.time = time;
    raw.header.tgid = kParent;
    raw.header.frame.rip = 0x1800;
    raw.header.stack.count = 1;
    raw.header.stack.end = HEAPTAP_STACK_WHOLE;
    kernel_.stacks[time] = raw.header.stack;
    kernel_.raw_stacks.push_back(raw);
  }
  kernel_.Sample(parent, kBytes);
  kernel_.Exit(kParent, "parent");
  kernel_.events.back().time = now + 60;
  std::map<uint64_t, uint32_t> ends;
  recorder_->Pump();
  for (const uint64_t time : {10, 30, 50}) ends[time] = kernel_.stacks.at(now + time).end;
  EXPECT_EQ(ends[10], HEAPTAP_STACK_NO_CODE);
  EXPECT_NE(ends[30], HEAPTAP_STACK_NO_CODE);
  EXPECT_EQ(ends[50], HEAPTAP_STACK_NO_CODE);
}

TEST_F(EventLoopTest, WhatIsLaterThanAllEventsWaitsForTheNextBatch) {
  FakeClock clock;
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  recorder_->Pump();
  kernel_.mappings = {Mapping(kParent, bpf::SimulatedKernel::Now() + 1)};
  Trigger(HEAPTAP_EVENT_HIGH_WATER, kParent, parent);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, kBytes)));
  clock.Advance(absl::Nanoseconds(1));
  recorder_->Pump();
  Trigger(HEAPTAP_EVENT_HIGH_WATER, kParent, parent);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), UnorderedElementsAre(Text(1, kBytes), Text(1, kBytes, kDefaultRate, 1)));
}

TEST_F(EventLoopTest, EventsOfUnknownProcessesOpenNoBooks) {
  RecordParent();
  const heaptap_event strangers[] = {kernel_.MakeEvent(HEAPTAP_EVENT_FORK, kOther, 1000, "other", 998),
                                     kernel_.MakeEvent(HEAPTAP_EVENT_EXEC, kOther, 1002, "other", 1000),
                                     kernel_.MakeEvent(HEAPTAP_EVENT_EXIT, kOther, 1004, "other"),
                                     kernel_.MakeEvent(HEAPTAP_EVENT_EXIT, kOther, 0, "other"),
                                     kernel_.MakeEvent(HEAPTAP_EVENT_START, kOther, 1006, "other"),
                                     kernel_.MakeEvent(HEAPTAP_EVENT_INTERVAL, kOther, 1008, "other")};
  for (const heaptap_event& event : strangers) kernel_.Send(event);
  recorder_->Pump();
  EXPECT_FALSE(recorder_->IsRecorded(kOther));
  EXPECT_THAT(Dumps(kOther), IsEmpty());
}

}  // namespace
}  // namespace heaptap::recording
