// SPDX-License-Identifier: Apache-2.0
//
// What the kernel refuses for want of memory is done later.
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/controlled_child.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/clock.h"
#include "userspace/process/facts.h"
#include "userspace/recording/everyone.h"
#include "userspace/targets/rules.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EveryoneTest : public RecorderTest {
 protected:
  uint32_t MaxLive(uint64_t process_id) {
    absl::MutexLock lock(&kernel_.mutex);
    return kernel_.processes.at(process_id).process.limits.max_live;
  }
  void Tick() { recorder_->everyone().Tick(base::Now()); }
};

TEST_F(EveryoneTest, ARuleThatTheKernelRefusesIsTriedEverySecond) {
  RecorderOptions options = EveryProcess();
  options.policy.max_live = 5;
  Start(options);
  const uint64_t id = kernel_.Enter(kParent, "parent");
  kernel_.Send(kernel_.MakeEvent(HEAPTAP_EVENT_START, kParent, id, "parent"));
  kernel_.runs_to_fail = 2;
  recorder_->Pump();
  Tick();
  EXPECT_EQ(kernel_.runs_to_fail, 0);
  EXPECT_EQ(MaxLive(id), 0u);
  EXPECT_TRUE(recorder_->everyone().failed());
  Tick();
  EXPECT_EQ(MaxLive(id), 5u);
  // Only once.
  kernel_.runs_to_fail = 1;
  Tick();
  EXPECT_EQ(kernel_.runs_to_fail, 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ::testing::internal::CaptureStderr();
  const std::string line = "its rule (parent) does not hold until heaptap succeeds; it tries every second\n";
  EXPECT_THAT(said, HasSubstr(line));
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
}

// A collector may open books for a process whose end the kernel has told before.
TEST_F(EveryoneTest, BooksThatNobodyWillEndAreClosed) {
  const Child lives;
  const Child ended;
  ended.Kill();
  const Child has_samples;
  has_samples.Kill();  // its end will be told
  const std::unique_ptr<bpf::Books> earlier = bpf::MakeSimulatedBooks(kernel_, false);
  std::map<pid_t, uint64_t> ids;
  for (const pid_t pid : {lives.pid(), ended.pid(), has_samples.pid()})
    ids[pid] = *earlier->processes().Track(pid, true, {});
  kernel_.Sample(ids[has_samples.pid()], kBytes);
  const Child entered;
  entered.Kill();
  kernel_.Enter(entered.pid(), "entered");
  Start(EveryProcess(), true);
  ASSERT_TRUE(recorder_->IsRecorded(ended.pid()));
  Tick();
  while (recorder_->IsRecorded(ended.pid())) recorder_->Pump();
  EXPECT_TRUE(recorder_->IsRecorded(lives.pid()));
  EXPECT_TRUE(recorder_->IsRecorded(has_samples.pid()));
  EXPECT_TRUE(recorder_->IsRecorded(entered.pid()));
  EXPECT_THAT(recorder_->endings().ended(), IsEmpty()) << "an end without anything before is no news";
  absl::MutexLock lock(&kernel_.mutex);
  EXPECT_FALSE(kernel_.processes.contains(ids[ended.pid()]));
}

// The rules test facts, which are read after the start; then the process has its rate and its collector.
TEST_F(EveryoneTest, ARuleHoldsWhenTheFactsOfItsProcessHaveBeenRead) {
  for (const bool resets : {false, true}) {
    const ControlledChild child;
    const std::string command = process::ReadFacts(child.pid())->command;
    RecorderOptions options = EveryProcess();
    options.system_wide->rules = Rules::Parse({"comm=" + command + " lg-sample=12 max-live=5"}, {}).value();
    Start(options);
    uint64_t id = kernel_.Enter(child.pid(), "child");
    heaptap_event start = kernel_.MakeEvent(HEAPTAP_EVENT_START, child.pid(), id, "child", ControlledChild::address());
    const heaptap_control block = child.Read();
    memcpy(start.memory, &block, sizeof(block));
    kernel_.Send(start);
    // It has other books before it is read.
    if (resets) id = kernel_.Reset(child.pid(), 17);
    recorder_->Pump();
    Tick();
    recorder_->Pump();
    EXPECT_EQ(MaxLive(id), 5u) << resets;
    EXPECT_EQ(child.Read().collector_pid, static_cast<uint32_t>(getpid())) << resets;
    EXPECT_EQ(child.Read().collector_lg_sample, 12u) << resets;
  }
}

// prof.reset gives a process other books, whose figures are smaller.
TEST_F(EveryoneTest, TheRateOfAllocationIsThatOfThePresentBooks) {
  FakeClock clock;
  Start(EveryProcess());
  const auto rate_at_next_tick = [&](uint64_t process_id) {
    recorder_->Pump();
    clock.Advance(absl::Seconds(1));
    Tick();
    recorder_->queries().ForgetSummaries(base::Now());
    EXPECT_EQ(recorder_->queries().PlanSummaries(), std::nullopt);
    const std::vector<profile::ProcessSummary> processes =
        recorder_->queries().MakeSummaries({{process_id, {}}}, absl::ZeroDuration());
    return processes.size() == 1 ? processes[0].allocation_rate : -1;
  };
  const uint64_t before = kernel_.Enter(kParent, "parent");
  kernel_.Sample(before, 100 * kBytes);
  EXPECT_EQ(rate_at_next_tick(before), 0);
  kernel_.Sample(before, kBytes);
  EXPECT_EQ(rate_at_next_tick(before), kBytes);
  const uint64_t after = kernel_.Reset(kParent, kDefaultRate);
  kernel_.Sample(after, kBytes);
  EXPECT_EQ(rate_at_next_tick(after), 0);
  kernel_.Sample(after, 2 * kBytes);
  EXPECT_EQ(rate_at_next_tick(after), 2 * kBytes);
}

TEST_F(EveryoneTest, CachedRulesOfNewMappingsAreMadeInvalidEvenIfThatFailsOnce) {
  Start(EveryProcess());
  kernel_.Enter(kParent, "parent");
  recorder_->Pump();
  kernel_.mappings.push_back(Mapping(kParent, bpf::SimulatedKernel::Now()));
  kernel_.runs_to_fail = 1;
  recorder_->Pump();
  EXPECT_THAT(kernel_.invalidated, IsEmpty());
  for (int i = 0; i < 2; i++) recorder_->Pump();
  EXPECT_THAT(kernel_.invalidated, ElementsAre(kParent));
}

}  // namespace
}  // namespace heaptap::recording
