// SPDX-License-Identifier: Apache-2.0
//
// A recording whose hands wait for ever for one process. It goes on with all others.
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/child.h"
#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uid_t kUser = 1234;
constexpr uint64_t kTallies = 100;  // of all processes
constexpr uint32_t kEndedThread = 5'000'100;
constexpr heaptap_free kFree = {.address = 0x10, .serial = 1};

class OrdersTest : public RecorderTest {
 protected:
  OrdersTest() {
    RecorderOptions options = EveryProcess();
    options.background = base::Background::Place::kOwnThread;
    options.map_sizes.tallies = kTallies;
    // A busy machine may hold up the hands of the other process too.
    options.hands.patience = absl::Minutes(1);
    Start(options);
    kernel_.on_is_current = [this](pid_t pid) {
      if (pid == late_.pid() && std::this_thread::get_id() != thread_) end_.WaitForNotification();
    };
    late_id_ = Enter(late_);
    other_id_ = Enter(other_);
    recorder_->Pump();
  }
  ~OrdersTest() override {
    Answer();
    recorder_ = nullptr;
  }
  // Hands wait no longer.
  void Answer() {
    if (!end_.HasBeenNotified()) end_.Notify();
  }
  uint64_t Enter(const Child& child) {
    const uint64_t process_id = kernel_.Enter(child.pid(), "child");
    kernel_.Sample(process_id, kBytes);
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.at(process_id).process.pending = reinterpret_cast<uint64_t>(&pending);
    return process_id;
  }
  // Keeps the hands of its user busy.
  void HoldUp() {
    kernel_.Send(kernel_.MakeEvent(HEAPTAP_EVENT_HIGH_WATER, late_.pid(), late_id_, "child"));
    recorder_->Pump();
    EXPECT_TRUE(recorder_->dumps().IsMaking(late_id_));
  }
  // What an ended thread has allocated and freed.
  void AddEndedThread(uint64_t process_id) {
    bpf::TallyEntry entry = {.stack_id = process_id, .tid = kEndedThread, .tally = {}};
    entry.tally.allocated = {.objects = 1, .bytes = 1, .weight = 1, .weighted_objects = 0};
    entry.tally.freed = entry.tally.allocated;
    kernel_.tallies[process_id].push_back(entry);
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.at(process_id).process.figures.tallies = kTallies / 2;
  }
  bool HasEndedThread(uint64_t process_id) const {
    return std::ranges::count(kernel_.tallies.at(process_id), kEndedThread, &bpf::TallyEntry::tid) != 0;
  }
  bool PumpUntil(const std::function<bool()>& is_over) {
    const base::Instant end = base::Now() + absl::Minutes(1);
    while (!is_over() && base::Now() < end) {
      recorder_->Pump();
      poll(nullptr, 0, 1);
    }
    return is_over();
  }

  // The same in the children.
  static inline heaptap_pending pending = [] {
    heaptap_pending one = {};
    one.used = 1;
    one.slots[0] = {.count = 1, .reserved = 0, .weight = 0, .frees = {kFree}};
    return one;
  }();
  const std::thread::id thread_ = std::this_thread::get_id();
  const bool is_root_ = getuid() == 0;
  const Child late_{[this] { return !is_root_ || (setuid(kUser) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0); }};
  const Child other_;
  uint64_t late_id_ = 0;
  uint64_t other_id_ = 0;
  absl::Notification end_;
};

TEST_F(OrdersTest, TheDumpOfAnotherProcessDoesNotWait) {
  if (!is_root_) GTEST_SKIP() << "needs processes of two users";
  recorder_->DumpAll(HEAPTAP_DUMP_MANUAL);
  EXPECT_TRUE(recorder_->dumps().IsMaking(late_id_));
  ASSERT_TRUE(PumpUntil([&] { return !Dumps(other_.pid()).empty(); }));
  EXPECT_THAT(kernel_.frees_taken[other_id_], SizeIs(1));
  EXPECT_THAT(Dumps(late_.pid()), IsEmpty());
  EXPECT_FALSE(recorder_->IsSettled());
  Answer();
  ASSERT_TRUE(PumpUntil([&] { return !Dumps(late_.pid()).empty(); }));
  EXPECT_THAT(kernel_.frees_taken[late_id_], SizeIs(1));
  EXPECT_TRUE(PumpUntil([&] { return !recorder_->dumps().IsMaking(late_id_); }));
}

// Its books stay until then.
TEST_F(OrdersTest, AProcessThatStartsAnotherProgramMeanwhileHasItsDump) {
  recorder_->DumpAll(HEAPTAP_DUMP_MANUAL);
  kernel_.Exec(late_.pid(), "next");
  for (int i = 0; i < 3; i++) recorder_->Pump();
  EXPECT_TRUE(kernel_.HasBooks(late_id_));
  Answer();
  ASSERT_TRUE(PumpUntil([&] { return !Dumps(late_.pid()).empty(); }));
  EXPECT_EQ(Dumps(late_.pid()).front(), Text(1, kBytes));
  EXPECT_TRUE(PumpUntil([&] { return !kernel_.HasBooks(late_id_); }));
}

TEST_F(OrdersTest, TheEndOfARecordingWaitsForDumpsThatHandsHoldUp) {
  recorder_->DumpAll(HEAPTAP_DUMP_MANUAL);
  std::thread later([this] {
    constexpr int kMilliseconds = 50;
    poll(nullptr, 0, kMilliseconds);
    Answer();
  });
  recorder_->FinishBackground();
  EXPECT_THAT(Dumps(late_.pid()), SizeIs(1));
  later.join();
}

TEST_F(OrdersTest, TalliesOfAnotherProcessAreFolded) {
  if (!is_root_) GTEST_SKIP() << "needs processes of two users";
  HoldUp();
  AddEndedThread(late_id_);
  AddEndedThread(other_id_);
  recorder_->everyone().Tick(base::Now());
  ASSERT_TRUE(PumpUntil([&] { return !HasEndedThread(other_id_); }));
  EXPECT_TRUE(HasEndedThread(late_id_));
  recorder_->Pump();
  EXPECT_FALSE(recorder_->everyone().IsFolding()) << "a Pump that follows at once could do nothing";
  Answer();
  EXPECT_TRUE(PumpUntil([&] { return !HasEndedThread(late_id_); }));
}

// Each look at its threads is outdated when its answer comes.
TEST_F(OrdersTest, AProcessThatBeginsThreadsAllTheTimeIsTried) {
  AddEndedThread(other_id_);
  recorder_->everyone().Tick(base::Now());
  EXPECT_TRUE(PumpUntil([&] {
    absl::MutexLock lock(&kernel_.mutex);
    kernel_.processes.at(other_id_).process.threads_begun++;
    return !HasEndedThread(other_id_);
  }));
}

TEST_F(OrdersTest, StacksOfAnotherProcessAreFound) {
  if (!is_root_) GTEST_SKIP() << "needs processes of two users";
  HoldUp();
  std::vector<pid_t> found;
  for (const auto& [pid, process_id] : {std::pair(late_.pid(), late_id_), std::pair(other_.pid(), other_id_)}) {
    const uint64_t stack = kernel_.tallies.at(process_id).front().stack_id;
    recorder_->surveys().Stacks({pid, process_id}, {stack},
                                [&, pid = pid](absl::StatusOr<profile::SurveyedStacks> stacks) {
                                  ASSERT_TRUE(stacks.ok()) << stacks.status();
                                  EXPECT_THAT(stacks->stacks, SizeIs(1));
                                  found.push_back(pid);
                                });
  }
  ASSERT_TRUE(PumpUntil([&] { return !found.empty(); }));
  EXPECT_THAT(found, ElementsAre(other_.pid()));
  Answer();
  ASSERT_TRUE(PumpUntil([&] { return found.size() == 2; }));
  absl::StatusOr<profile::SurveyedStacks> ended;
  recorder_->surveys().Stacks({other_.pid(), late_id_ + other_id_}, {},
                              [&](auto stacks) { ended = std::move(stacks); });
  EXPECT_TRUE(absl::IsNotFound(ended.status())) << ended.status();
}

TEST_F(OrdersTest, SummariesWaitForFreesAShortTime) {
  if (!is_root_) GTEST_SKIP() << "needs processes of two users";
  Queries& queries = recorder_->queries();
  EXPECT_EQ(queries.PlanSummaries(), std::nullopt);
  const base::Instant begin = base::Now();
  EXPECT_FALSE(queries.HasPlannedSummaries(begin));
  EXPECT_TRUE(queries.HasPlannedSummaries(begin + absl::Milliseconds(101)));
  ASSERT_TRUE(PumpUntil([&] { return kernel_.frees_taken.contains(other_id_); }));
  EXPECT_FALSE(queries.HasPlannedSummaries(begin));
  Answer();
  ASSERT_TRUE(PumpUntil([&] { return queries.HasPlannedSummaries(begin); }));
  EXPECT_THAT(kernel_.frees_taken[late_id_], SizeIs(1));
}

}  // namespace
}  // namespace heaptap::recording
