// SPDX-License-Identifier: Apache-2.0
//
// Frees of samples are held back, and none is forgotten.
#include "allocator/sampling/pending_frees.h"

#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/core/allocate.h"
#include "gtest/gtest.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::Books;
using testing::ReadBooks;

constexpr size_t kSize = 100;

class PendingFreesTest : public ::testing::Test {
 protected:
  PendingFreesTest() {
    Free(Allocate(size_t{64} << 10));  // the thread notices that sampling is on, and has no ready blocks any more
    ReportFreesOfAllThreads();
    testing::ClearBooks();
    before_ = ReadBooks().numbered;
  }
  ~PendingFreesTest() override { EXPECT_EQ(ReadBooks().errors, 0u); }

  // Samples whose free was not reported.
  uint64_t Unreported() const { return ReadBooks().numbered - before_; }

  static std::vector<void*> Blocks(size_t count) {
    std::vector<void*> blocks(count);
    for (void*& block : blocks) block = Allocate(kSize);
    return blocks;
  }
  static void FreeAll(const std::vector<void*>& blocks) {
    for (void* block : blocks) Free(block);
  }

  // A thread that has freed `count` samples and ends with this object.
  class HoldingThread {
   public:
    explicit HoldingThread(size_t count) {
      thread_ = std::thread([this, count] {
        FreeAll(Blocks(count));
        step_.arrive_and_wait();
        step_.arrive_and_wait();
      });
      step_.arrive_and_wait();
    }
    ~HoldingThread() {
      step_.arrive_and_wait();
      thread_.join();
    }

   private:
    std::barrier<> step_{2};
    std::thread thread_;
  };

 private:
  testing::SamplingOn sampling_{0};
  testing::FreesHeard heard_;
  uint64_t before_;
};

TEST_F(PendingFreesTest, GoWithTheNextSample) {
  const std::vector<void*> blocks = Blocks(10);
  FreeAll(blocks);
  EXPECT_EQ(ReadBooks().reports, 0u);
  EXPECT_EQ(Unreported(), 10u);
  void* next = Allocate(kSize);
  EXPECT_EQ(Unreported(), 1u);
  Free(next);
  ReportFreesOfThread();
  EXPECT_EQ(Unreported(), 0u);
  EXPECT_EQ(ReadBooks().reports, 1u);
  ReportFreesOfThread();
  EXPECT_EQ(ReadBooks().reports, 1u);
}

TEST_F(PendingFreesTest, GoWhenTheSlotIsFull) {
  const std::vector<void*> blocks = Blocks(2 * HEAPTAP_SLOT_FREES + 5);
  FreeAll(blocks);
  EXPECT_EQ(ReadBooks().reports, 2u);
  EXPECT_EQ(ReadBooks().largest_report, uint64_t{HEAPTAP_SLOT_FREES});
  EXPECT_EQ(Unreported(), 5u);
  ReportFreesOfThread();
  EXPECT_EQ(Unreported(), 0u);
}

TEST_F(PendingFreesTest, OfManyBytesGoAtOnce) {
  void* small = Allocate(kSize);
  void* large = Allocate(HEAPTAP_SLOT_WEIGHT + 1);
  Free(small);
  EXPECT_EQ(Unreported(), 2u);
  Free(large);
  EXPECT_EQ(Unreported(), 0u);
}

TEST_F(PendingFreesTest, GoWhenTheThreadEnds) {
  std::thread([] { FreeAll(Blocks(7)); }).join();
  EXPECT_EQ(Unreported(), 0u);
}

TEST_F(PendingFreesTest, OfOtherThreadsCanBeReportedAndComeOnceMore) {
  {
    const HoldingThread thread(7);
    EXPECT_EQ(Unreported(), 7u);
    ReportFreesOfAllThreads();
    EXPECT_EQ(Unreported(), 0u);
  }
  EXPECT_EQ(Unreported(), 0u);
}

TEST_F(PendingFreesTest, GoAtOnceWhereRecordsAreWanted) {
  FreeAll(Blocks(1));
  EXPECT_EQ(Unreported(), 1u);
  ReportFreesAtOnce(true);
  EXPECT_EQ(Unreported(), 0u);
  FreeAll(Blocks(3));
  EXPECT_EQ(Unreported(), 0u);
  EXPECT_EQ(ReadBooks().largest_report, 1u);
  ReportFreesAtOnce(false);
  FreeAll(Blocks(1));
  EXPECT_EQ(Unreported(), 1u);
}

TEST_F(PendingFreesTest, AreTheParentsInTheChildOfAFork) {
  const std::vector<void*> blocks = Blocks(3);
  std::optional<HoldingThread> thread(std::in_place, 4);
  const pid_t child = fork();
  if (child == 0) {
    testing::ClearBooks();
    ReportFreesOfAllThreads();
    const bool has_none = ReadBooks().reports == 0;
    FreeAll(blocks);
    ReportFreesOfThread();
    _exit(has_none && ReadBooks().reports == 1 && ReadBooks().errors == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Unreported(), 7u);
  thread.reset();
  FreeAll(blocks);
  ReportFreesOfThread();
  EXPECT_EQ(Unreported(), 0u);
}

TEST_F(PendingFreesTest, NoneAreLeftWhenTheProcessEnds) {
  const pid_t child = fork();
  if (child == 0) {
    testing::ClearBooks();
    const uint64_t before = ReadBooks().numbered;
    FreeAll(Blocks(3));
    EndPendingFrees();
    const bool is_reported = ReadBooks().numbered == before && ReadBooks().ends == 1;
    FreeAll(Blocks(1));
    // A sample after the end does not tell the kernel to look for more.
    const bool has_none = PendingFreesOfThread().where == 0;
    _exit(is_reported && has_none && ReadBooks().numbered == before ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(PendingFreesTest, OfMoreThreadsThanThereAreSlots) {
  constexpr int kThreads = HEAPTAP_SLOTS + 20;
  std::barrier freed(kThreads + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      void* block = Allocate(kSize);
      freed.arrive_and_wait();
      Free(block);
      freed.arrive_and_wait();
      freed.arrive_and_wait();
    });
  }
  freed.arrive_and_wait();
  freed.arrive_and_wait();
  EXPECT_LE(Unreported(), uint64_t{HEAPTAP_SLOTS});
  EXPECT_GE(ReadBooks().reports, 20u);
  ReportFreesOfAllThreads();
  EXPECT_EQ(Unreported(), 0u);
  freed.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace heaptap
