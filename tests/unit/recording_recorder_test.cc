// SPDX-License-Identifier: Apache-2.0
//
// The recorder with simulated books.
#include <limits.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/fake_clock.h"

namespace heaptap::recording {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

// Some times what any test needs until a process is forgotten.
constexpr int kPumpsAtMost = 100;

TEST_F(RecorderTest, AForkIsFollowed) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(child, 3 * kBytes);
  kernel_.Exit(kChild, "child");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, 3 * kBytes)));
  EXPECT_THAT(Dumps(kParent), IsEmpty());
  kernel_.Sample(parent, kBytes);
  kernel_.Exit(kParent, "parent");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(2, 2 * kBytes)));
  EXPECT_THAT(Dumps(kChild), SizeIs(1));
  EXPECT_FALSE(recorder_->IsRecorded(kParent));
}

TEST_F(RecorderTest, ClosedBooksAreForgottenOnePumpLater) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  kernel_.Exit(kParent, "parent");
  recorder_->Pump();
  EXPECT_TRUE(kernel_.tallies.contains(parent));
  recorder_->Pump();
  recorder_->Pump();  // sweeps
  EXPECT_FALSE(kernel_.HasBooks(parent));
  EXPECT_TRUE(kernel_.stacks.empty());
}

// An end that another CPU sent before the fork.
TEST_F(RecorderTest, AnExitMayComeBeforeTheFork) {
  constexpr uint32_t kRate = 12;
  RecordParent();
  const uint64_t parent = kernel_.Reset(kParent, kRate);
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(child, kBytes);
  kernel_.Exit(kChild, "child");
  std::swap(kernel_.events[1], kernel_.events[2]);
  recorder_->Pump();
  // With the facts of its parent.
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, kBytes, kRate)));
}

TEST_F(RecorderTest, AForkAfterTheBooksAreClosedOpensNone) {
  const uint64_t parent = RecordParent();
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(child, kBytes);
  kernel_.Exit(kChild, "child");
  const heaptap_event fork = kernel_.events[0];
  kernel_.events.erase(kernel_.events.begin());
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), SizeIs(1));
  kernel_.events.push_back(fork);
  recorder_->Pump();
  EXPECT_FALSE(recorder_->IsRecorded(kChild));
  EXPECT_THAT(Dumps(kChild), SizeIs(1));
}

TEST_F(RecorderTest, AnExitMayComeBeforeTheStart) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  const heaptap_event start = kernel_.MakeEvent(HEAPTAP_EVENT_START, kParent, parent, "parent");
  kernel_.Exit(kParent, "parent");
  kernel_.Send(start);
  recorder_->Pump();
  kernel_.Send(start);
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), SizeIs(1));
  EXPECT_FALSE(recorder_->IsRecorded(kParent));
}

// The event that was sent last has the earliest time.
TEST_F(RecorderTest, EventsMayComeInAnotherOrderThanTheirTimes) {
  const uint64_t parent = RecordParent();
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(parent, kBytes);
  kernel_.Sample(child, kBytes);
  recorder_->Pump();
  const uint64_t now = bpf::SimulatedKernel::Now();
  kernel_.Exit(kChild, "child");
  kernel_.Exit(kParent, "parent");
  kernel_.events[0].time = now + 200;
  kernel_.events[1].time = now + 100;
  kernel_.mappings = {Mapping(kParent, now + 90), Mapping(kChild, now + 190)};
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, kBytes, kDefaultRate, 1)));
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, kBytes, kDefaultRate, 1)));
}

TEST_F(RecorderTest, AMappingAfterTheExitBelongsToTheNextProcess) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  kernel_.Exit(kParent, "parent");
  kernel_.mappings = {Mapping(kParent, kernel_.events[0].time + 1)};
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, kBytes)));
}

TEST_F(RecorderTest, BooksThatCannotBeReadAreReadAgainOrFail) {
  const auto finish = [&](int readings_to_fail) {
    RecorderOptions options = Children();
    options.show_books = true;
    Start(options);
    EXPECT_TRUE(recorder_->RecordChild(kParent).ok());
    kernel_.Sample(kernel_.next_collector_id - 2, kBytes);
    recorder_->Pump();
    kernel_.readings_to_fail = readings_to_fail;
    ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    recorder_->Finish();
    std::string said = ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    return said;
  };
  EXPECT_THAT(finish(1), HasSubstr("{\"books\""));
  EXPECT_FALSE(recorder_->failed());
  EXPECT_THAT(finish(INT_MAX),
              AllOf(Not(HasSubstr("{\"books\"")), HasSubstr("reading map tallies: Cannot allocate memory")));
  EXPECT_TRUE(recorder_->failed());
}

TEST_F(RecorderTest, ALostExitIsFound) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  recorder_->Pump();
  kernel_.loses_events = true;
  kernel_.Exit(kParent, "parent");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, kBytes)));
  recorder_->Pump();
  recorder_->Pump();
  EXPECT_FALSE(kernel_.HasBooks(parent));
  EXPECT_THAT(Dumps(kParent), SizeIs(1));
}

TEST_F(RecorderTest, LostForksExecsAndResetsAreFound) {
  const uint64_t parent = RecordParent();
  kernel_.Sample(parent, kBytes);
  recorder_->Pump();
  kernel_.loses_events = true;
  const uint64_t child = kernel_.Fork(parent, kChild, "child");
  kernel_.Sample(child, kBytes);
  const uint64_t program = kernel_.Exec(kChild, "program");
  kernel_.Sample(program, 2 * kBytes);
  const uint64_t reset = kernel_.Reset(kParent, kDefaultRate);
  kernel_.Sample(reset, 5 * kBytes);
  recorder_->Pump();
  EXPECT_TRUE(recorder_->IsRecorded(kChild));
  kernel_.loses_events = false;
  kernel_.Exit(kChild, "program");
  kernel_.Exit(kParent, "parent");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kChild), ElementsAre(Text(1, 2 * kBytes)));
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, 5 * kBytes)));
  recorder_->Pump();
  recorder_->Pump();
  for (const uint64_t process_id : {parent, child, program, reset}) EXPECT_FALSE(kernel_.HasBooks(process_id));
}

TEST_F(RecorderTest, AnExecDropsTheBooks) {
  const uint64_t before = RecordParent();
  kernel_.Sample(before, kBytes);
  const uint64_t after = kernel_.Exec(kParent, "program");
  recorder_->Pump();
  recorder_->Pump();
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), IsEmpty());
  EXPECT_FALSE(kernel_.HasBooks(before));
  kernel_.Sample(after, 2 * kBytes);
  kernel_.Exit(kParent, "program");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, 2 * kBytes)));
}

TEST_F(RecorderTest, AResetBeginsNewBooksWithTheNewRate) {
  constexpr uint32_t kRate = 15;
  const uint64_t before = RecordParent();
  kernel_.Sample(before, kBytes);
  const uint64_t after = kernel_.Reset(kParent, kRate);
  kernel_.Sample(after, 2 * kBytes);
  recorder_->Pump();
  recorder_->Pump();
  recorder_->Pump();
  EXPECT_FALSE(kernel_.HasBooks(before));
  EXPECT_TRUE(recorder_->IsRecorded(kParent));
  kernel_.Exit(kParent, "parent");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kParent), ElementsAre(Text(1, 2 * kBytes, kRate)));
}

TEST_F(RecorderTest, AProcessEntersASystemWideRecording) {
  Start(EveryProcess());
  EXPECT_EQ(kernel_.settings.everyone, 1u);
  const uint64_t process_id = kernel_.Enter(kOther, "other");
  kernel_.Sample(process_id, kBytes);
  recorder_->Pump();
  EXPECT_TRUE(recorder_->IsRecorded(kOther));
  kernel_.Exit(kOther, "other");
  recorder_->Pump();
  EXPECT_THAT(Dumps(kOther), ElementsAre(Text(1, kBytes)));
}

TEST_F(RecorderTest, AProcessKeepsItsNameOverAReset) {
  Start(EveryProcess());
  kernel_.Enter(kOther, "name");
  recorder_->Pump();
  kernel_.Sample(kernel_.Reset(kOther, kDefaultRate), kBytes);
  kernel_.Exit(kOther, "thread");
  recorder_->Pump();
  EXPECT_EQ(ReadFile(folder_ / absl::StrCat("name.", kOther, ".0.f.heap")), Text(1, kBytes));
}

// The events of other processes were lost, so the end of the books is found before the event of the reset arrives.
TEST_F(RecorderTest, AResetMayBeFoundBeforeItsEvent) {
  constexpr uint32_t kRate = 15;
  for (const bool exits : {false, true}) {
    SCOPED_TRACE(exits ? "the process has ended" : "the process lives");
    Start(EveryProcess());
    const pid_t pid = exits ? kOther : kParent;
    bpf::MappingEvent exec = Mapping(pid, bpf::SimulatedKernel::Now());
    exec.kind = bpf::MappingEvent::kExec;
    kernel_.mappings = {exec, Mapping(pid, bpf::SimulatedKernel::Now())};
    const uint64_t before = kernel_.Enter(pid, "name");
    kernel_.Sample(before, kBytes);
    recorder_->Pump();
    const uint64_t after = kernel_.Reset(pid, kRate);
    kernel_.Sample(after, 2 * kBytes);
    if (exits) kernel_.Exit(pid, "thread");
    std::vector<heaptap_event> late = std::exchange(kernel_.events, {});
    kernel_.events_lost++;
    recorder_->Pump();
    EXPECT_EQ(recorder_->IsRecorded(pid), !exits);
    kernel_.events = std::move(late);
    if (!exits) kernel_.Exit(pid, "thread");
    for (int pumps = 0; pumps < 3; pumps++) recorder_->Pump();
    // With the name and the mappings from before the reset.
    EXPECT_EQ(ReadFile(folder_ / absl::StrCat("name.", pid, ".0.f.heap")),
              Text(1, 2 * kBytes, exits ? kDefaultRate : kRate, 1));
    EXPECT_FALSE(recorder_->IsRecorded(pid));
    EXPECT_FALSE(kernel_.HasBooks(before));
    // Once, behind what the recorder of the other case has left.
    EXPECT_THAT(recorder_->endings().ended(), SizeIs(exits ? 2 : 1));
  }
}

class DyingRecorderTest : public RecorderTest {
 protected:
  void DieAtEachStep(absl::FunctionRef<void(pid_t)> end, size_t dumps, std::set<std::string>& steps);
};

// Each round, the collector dies one step later while it closes the books of a process whose image has ended with
// `end`. The next collector finishes the work, whichever step was the last. Adds the steps to `steps`.
void DyingRecorderTest::DieAtEachStep(absl::FunctionRef<void(pid_t)> end, size_t dumps, std::set<std::string>& steps) {
  FakeClock clock;
  bool has_died = true;
  for (int lives = 0; has_died; lives++) {
    SCOPED_TRACE(absl::StrCat("the collector dies after ", lives, " steps"));
    const pid_t pid = kOther + lives;
    kernel_.steps_left.reset();
    Start(EveryProcess(), lives > 0);
    const uint64_t process_id = kernel_.Enter(pid, "other");
    kernel_.Sample(process_id, kBytes);
    kernel_.Sample(process_id, kBytes);
    kernel_.losses[process_id][HEAPTAP_LOSS_STACKS_FULL].events = 1;
    recorder_->Pump();
    end(pid);

    has_died = false;
    std::string step;
    size_t dumps_before = 0;
    kernel_.steps_left = lives;
    try {
      for (int pumps = 0; pumps < 3; pumps++) recorder_->Pump();
    } catch (const bpf::CollectorDied& death) {
      has_died = true;
      step = death.step;
      steps.insert(step);
      dumps_before = Dumps(pid).size();
    }
    SCOPED_TRACE(absl::StrCat("in front of: ", step));
    const bool is_marked = kernel_.closed.contains(process_id);
    kernel_.steps_left.reset();
    Start(EveryProcess(), true);
    // Ends that come soon after each other share one reading of the books.
    for (int pumps = 0; kernel_.HasBooks(process_id) && pumps < kPumpsAtMost; pumps++) {
      clock.Advance(Recorder::kPumpInterval);
      recorder_->Pump();
    }
    EXPECT_FALSE(kernel_.HasBooks(process_id));
    EXPECT_TRUE(kernel_.stacks.empty());
    // A dump without its mark is written again: rather twice than never.
    const bool is_repeated = step == "MarkClosed" && dumps_before == 1 && !is_marked;
    EXPECT_EQ(Dumps(pid), std::vector<std::string>(is_repeated ? 2 : dumps, Text(2, 2 * kBytes)));
    EXPECT_THAT(Dumps(0), IsEmpty());  // of unknown processes
  }
}

TEST_F(DyingRecorderTest, ACollectorMayDieBetweenAnyTwoStepsOfAnExit) {
  std::set<std::string> steps;
  DieAtEachStep([this](pid_t pid) { kernel_.Exit(pid, "other"); }, 1, steps);
  EXPECT_THAT(steps, IsSupersetOf({"handle events", "VisitTallies", "ReadStack", "MarkClosed", "forget the losses",
                                   "forget the end", "forget the stacks", "forget the tallies",
                                   "sweep the live objects", "sweep the marks"}));
}

TEST_F(DyingRecorderTest, ACollectorMayDieBetweenAnyTwoStepsOfAReset) {
  std::set<std::string> steps;
  DieAtEachStep([this](pid_t pid) { kernel_.Reset(pid, kDefaultRate); }, 0, steps);
  EXPECT_THAT(steps, IsSupersetOf({"handle events", "MarkClosed", "forget the losses", "forget the end",
                                   "forget the stacks", "forget the tallies"}));
  EXPECT_THAT(recorder_->endings().ended(), IsEmpty());
}

TEST_F(DyingRecorderTest, ACollectorMayDieBetweenAnyTwoStepsOfAnExec) {
  std::set<std::string> steps;
  DieAtEachStep([this](pid_t pid) { kernel_.Exec(pid, "program"); }, 0, steps);
  EXPECT_THAT(steps, IsSupersetOf({"handle events", "MarkClosed", "forget the losses", "forget the end",
                                   "forget the stacks", "forget the tallies"}));
}

}  // namespace
}  // namespace heaptap::recording
