// SPDX-License-Identifier: Apache-2.0
//
// What a process may ask of its own profile: activity of the process and of threads, names, resets, records, logs,
// hooks. Needs MALLOC_CONF=prof:true for dumps and logs, which the rule that runs the tests gives.
#include "allocator/profiling/profiling.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/size_class.h"
#include "allocator/process/process.h"
#include "allocator/profiling/dump.h"
#include "allocator/profiling/hooks.h"
#include "allocator/profiling/records.h"
#include "allocator/sampling/probes.h"
#include "allocator/sampling/sampler.h"
#include "allocator/sampling/statistics.h"
#include "recorder.h"

namespace heaptap {
namespace {

using testing::ClearBooks;
using testing::ReadBooks;
using testing::SamplingOn;

uint64_t SamplesOf(int allocations) {
  const uint64_t before = ReadBooks().allocs;
  for (int i = 0; i < allocations; i++) Free(Allocate(48));
  return ReadBooks().allocs - before;
}

class Profiling : public ::testing::Test {
 protected:
  Profiling() {
    StartProcess();
    ClearBooks();
  }
  void SetUp() override {
    ASSERT_TRUE(ProcessConfiguration().prof) << "the rule that runs the tests has to ask for it";
  }
  ~Profiling() override {
    SetProfilingActive(true);
    SetThreadActive(true);
    SetNewThreadsSampled(true);
    testing::SetDumpHandler(nullptr);
    heaptap_semaphore_dump = 0;
  }

  // Keeps what is asked for, and answers with `text` in the file.
  void Collect(const std::string& text = "") {
    heaptap_semaphore_dump = 1;
    testing::SetDumpHandler([this, text](heaptap_dump_request* request) {
      kinds_.push_back(static_cast<char>(request->kind));
      arguments_.push_back(request->argument);
      if (request->kind == HEAPTAP_ASK_RESET || request->kind == HEAPTAP_ASK_RECORD) return;
      EXPECT_EQ(write(request->file_fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
      __atomic_store_n(&request->answered, request->sequence, __ATOMIC_RELEASE);
      const uint64_t one = 1;
      EXPECT_EQ(write(request->event_fd, &one, sizeof(one)), 8);
    });
  }

  std::string kinds_;
  std::vector<uint64_t> arguments_;
};

TEST_F(Profiling, TheProcessIsActiveOrNot) {
  SamplingOn sampling(0);
  EXPECT_EQ(SamplesOf(10), 10u);
  SetProfilingActive(false);
  EXPECT_FALSE(IsProfilingActive());
  EXPECT_EQ(SamplesOf(10), 0u);
  SetProfilingActive(true);
  EXPECT_EQ(SamplesOf(10), 10u) << "the calling thread follows at once";
}

TEST_F(Profiling, AThreadIsActiveOrNot) {
  SamplingOn sampling(0);
  SetThreadActive(false);
  EXPECT_FALSE(IsThreadActive());
  EXPECT_EQ(SamplesOf(10), 0u);
  void* large = Allocate(100000);
  EXPECT_EQ(ReadBooks().allocs, 0u);
  Free(large);
  std::thread([] {
    EXPECT_TRUE(IsThreadActive());
    EXPECT_EQ(SamplesOf(10), 10u);
  }).join();
  SetThreadActive(true);
  EXPECT_EQ(SamplesOf(10), 10u);
}

TEST_F(Profiling, ThreadsBeginAsTheProcessSays) {
  SamplingOn sampling(0);
  SetNewThreadsSampled(false);
  EXPECT_TRUE(IsThreadActive()) << "threads that are there already stay as they are";
  std::thread([] {
    EXPECT_FALSE(IsThreadActive());
    EXPECT_EQ(SamplesOf(10), 0u);
    SetThreadActive(true);
    EXPECT_EQ(SamplesOf(10), 10u);
  }).join();
  SetNewThreadsSampled(true);
  std::thread([] { EXPECT_EQ(SamplesOf(10), 10u); }).join();
}

TEST_F(Profiling, NamesOfThreads) {
  std::thread([] {
    EXPECT_STREQ(ThreadName(), "");
    EXPECT_EQ(SetThreadName(nullptr), EINVAL);
    EXPECT_EQ(SetThreadName("with\nnewline"), EINVAL);
    EXPECT_EQ(SetThreadName("with\x7f"), EINVAL) << "DEL";
    EXPECT_STREQ(ThreadName(), "");
    EXPECT_EQ(SetThreadName("a name with blanks"), 0);
    EXPECT_STREQ(ThreadName(), "a name with bla") << "15 bytes are kept";
    EXPECT_EQ(SetThreadName(""), 0);
    EXPECT_STREQ(ThreadName(), "");
  }).join();
}

TEST_F(Profiling, NamesAreToldBeforeTheNextSample) {
  std::thread([] {
    EXPECT_EQ(SetThreadName("worker"), 0);
    EXPECT_TRUE(ReadBooks().thread_names.empty()) << "nobody listens, nothing is sampled";
    for (const char* name : {"worker", "another"}) {
      SamplingOn sampling(0);
      ClearBooks();
      SamplesOf(3);
      EXPECT_EQ(ReadBooks().thread_names, std::vector<std::string>{name}) << "once for each listener";
      EXPECT_EQ(SetThreadName("another"), 0);
      SamplesOf(3);
      EXPECT_EQ(ReadBooks().thread_names, (std::vector<std::string>{name, "another"}));
      // The thread has to notice that nobody listens any more.
      SetThreadActive(false);
      SamplesOf(1);
      SetThreadActive(true);
    }
  }).join();
}

TEST_F(Profiling, ResetIsToldAndMakesThreadsTellTheirNamesAgain) {
  Collect();
  SamplingOn sampling(0);
  ResetProfile();
  EXPECT_EQ(kinds_, "r");
  EXPECT_EQ(arguments_, std::vector<uint64_t>{0}) << "the rate that holds";
  std::thread([&] {
    EXPECT_EQ(SetThreadName("worker"), 0);
    SamplesOf(1);
    ClearBooks();
    ResetProfile();
    SamplesOf(1);
    EXPECT_EQ(ReadBooks().thread_names, std::vector<std::string>{"worker"});
  }).join();
}

TEST_F(Profiling, ResetSetsTheRateOfTheProcess) {
  const uint32_t before = control::EffectiveLgInterval();
  ResetProfile(99);
  EXPECT_EQ(control::EffectiveLgInterval(), uint32_t{HEAPTAP_MAX_LG_SAMPLE}) << "clipped";
  ResetProfile(3);
  EXPECT_EQ(control::EffectiveLgInterval(), 3u);
  {
    SamplingOn collector(5);
    EXPECT_EQ(control::EffectiveLgInterval(), 5u) << "the collector's wins";
  }
  ResetProfile(before);
  EXPECT_EQ(control::EffectiveLgInterval(), before);
}

TEST_F(Profiling, RecentSamples) {
  const std::string text(10000, 'x');
  Collect(text);
  SetRecentMaximum(-1);
  EXPECT_EQ(RecentMaximum(), -1);
  EXPECT_EQ(kinds_, "k");
  EXPECT_EQ(arguments_.back(), 1u);
  std::string got;
  EXPECT_EQ(DumpRecent([](void* opaque, const char* piece) { static_cast<std::string*>(opaque)->append(piece); }, &got),
            0);
  EXPECT_EQ(got, text) << "in pieces";
  EXPECT_EQ(kinds_, "kR");
  EXPECT_EQ(arguments_.back(), ~uint64_t{0});
  SetRecentMaximum(0);
  EXPECT_EQ(arguments_.back(), 0u);
  heaptap_semaphore_dump = 0;
  EXPECT_EQ(DumpRecent([](void*, const char*) { ADD_FAILURE(); }, nullptr), EFAULT) << "nobody is there";
}

TEST_F(Profiling, TheRecordIsAskedForBeforeTheFirstSample) {
  Collect();
  SetRecentMaximum(3);
  kinds_.clear();
  std::thread([&] {
    SamplingOn sampling(0);
    SamplesOf(2);
  }).join();
  EXPECT_EQ(kinds_, "k");
  SetRecentMaximum(0);
}

TEST_F(Profiling, Log) {
  Collect("log\n");
  const std::string path = ::testing::TempDir() + "heaptap_log." + std::to_string(getpid());
  EXPECT_EQ(StopLog(), EFAULT) << "none runs";
  SamplesOf(2);
  ASSERT_EQ(StartLog(path.c_str()), 0);
  EXPECT_EQ(StartLog(path.c_str()), EFAULT) << "one runs";
  EXPECT_EQ(kinds_, "k");
  {
    SamplingOn sampling(0);
    SetProfilingActive(true);  // what is ready already is no sample
    kinds_.clear();
    SamplesOf(7);
  }
  EXPECT_EQ(StopLog(), 0);
  ASSERT_GE(kinds_.size(), 2u);
  EXPECT_EQ(kinds_.substr(kinds_.size() - 2), "Lk");
  EXPECT_EQ(arguments_[arguments_.size() - 2], 7u) << "the samples since the start of the log";
  EXPECT_EQ(arguments_.back(), 0u);
  EXPECT_EQ(access(path.c_str(), R_OK), 0);
  unlink(path.c_str());
  EXPECT_EQ(StartLog(std::string(5000, 'x').c_str()), EFAULT) << "no such name can be opened";
}

std::atomic<int> hook_calls;
size_t hook_size;
size_t hook_usable;
const void* hook_pointer;

TEST_F(Profiling, HooksOfSamples) {
  SamplingOn sampling(0);
  hook_calls = 0;
  hooks.sample = [](const void* pointer, size_t size, void**, unsigned frames, size_t usable) {
    hook_calls++;
    hook_pointer = pointer;
    hook_size = size;
    hook_usable = usable;
    EXPECT_EQ(frames, 0u);
    // What a hook allocates calls no hook.
    Free(Allocate(32));
    errno = 99;
  };
  errno = 7;
  void* pointer = Allocate(10);
  EXPECT_EQ(errno, 7);
  EXPECT_EQ(hook_calls, 1);
  EXPECT_EQ(hook_pointer, pointer);
  EXPECT_EQ(hook_size, 10u);
  EXPECT_EQ(hook_usable, 16u);
  hooks.sample = nullptr;
  hooks.sample_free = [](const void* freed, size_t usable) {
    hook_calls++;
    EXPECT_EQ(freed, hook_pointer);
    EXPECT_EQ(usable, 16u);
  };
  Free(pointer);
  hooks.sample_free = nullptr;
  EXPECT_EQ(hook_calls, 2);
  void* large = Allocate(100001);
  hooks.sample_free = [](const void*, size_t usable) { hook_usable = usable; };
  Free(large);
  hooks.sample_free = nullptr;
  EXPECT_EQ(hook_usable, 114688u);
}

TEST_F(Profiling, TheHookOfDumpsIsCalledWithNoLockHeld) {
  Collect("profile\n");
  static std::string path;
  path = ::testing::TempDir() + "heaptap_dump." + std::to_string(getpid());
  hook_calls = 0;
  hooks.dump = [](const char* name) {
    if (hook_calls++ > 0) return;  // the other thread's
    EXPECT_EQ(name, path);
    // Another thread can dump meanwhile, and the hook itself too; that calls no hook.
    std::thread([] { EXPECT_EQ(Dump(HEAPTAP_DUMP_MANUAL, (path + ".other").c_str()), 0); }).join();
    EXPECT_EQ(Dump(HEAPTAP_DUMP_MANUAL, (path + ".own").c_str()), 0);
    errno = 99;
  };
  errno = 7;
  EXPECT_EQ(Dump(HEAPTAP_DUMP_MANUAL, path.c_str()), 0);
  EXPECT_EQ(errno, 7);
  EXPECT_EQ(hook_calls, 2) << "one for each thread's dump";
  hooks.dump = nullptr;
  for (const char* suffix : {"", ".other", ".own"}) unlink((path + suffix).c_str());
}

TEST_F(Profiling, ADumpInTheMiddleOfADumpIsRefusedAtOnce) {
  const std::string path = ::testing::TempDir() + "heaptap_dump." + std::to_string(getpid());
  heaptap_semaphore_dump = 1;
  int inner = 0;
  testing::SetDumpHandler([&](heaptap_dump_request* request) {
    inner = Dump(HEAPTAP_DUMP_MANUAL, path.c_str());
    __atomic_store_n(&request->answered, request->sequence, __ATOMIC_RELEASE);
  });
  EXPECT_EQ(Dump(HEAPTAP_DUMP_MANUAL, path.c_str()), 0);
  EXPECT_EQ(inner, EAGAIN);
  unlink(path.c_str());
}

TEST_F(Profiling, WhoeverHearsNobodyAnyMoreGivesUp) {
  const std::string path = ::testing::TempDir() + "heaptap_dump." + std::to_string(getpid());
  heaptap_semaphore_dump = 1;
  // The collector goes without an answer.
  testing::SetDumpHandler([](heaptap_dump_request*) { heaptap_semaphore_dump = 0; });
  EXPECT_EQ(Dump(HEAPTAP_DUMP_MANUAL, path.c_str()), EFAULT);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

// The rule that runs the tests runs these with MALLOC_CONF=prof:true,prof_stats:true.
class SampleStatisticsTest : public ::testing::Test {
 protected:
  SampleStatisticsTest() {
    StartProcess();
    before_small_ = ReadSampleStatistics(ClassNumber(64));
    before_large_ = ReadSampleStatistics(ClassNumber(114688));
  }
  void SetUp() override {
    ASSERT_TRUE(ProcessConfiguration().prof_stats) << "the rule that runs the tests has to ask for it";
  }
  LiveAndAccumulated before_small_{};
  LiveAndAccumulated before_large_{};
};

TEST_F(SampleStatisticsTest, RequestedSizesOfSamples) {
  // More than a slab's worth, so that blocks stand at its end too: nothing may be written behind them.
  constexpr size_t kBlocks = 5000;
  SamplingOn sampling(0);
  SetProfilingActive(true);
  std::vector<unsigned char*> blocks;
  uint64_t requested = 0;
  for (size_t i = 0; i < kBlocks; i++) {
    const size_t size = 49 + i % 16;
    auto* block = static_cast<unsigned char*>(Allocate(size));
    memset(block, static_cast<int>(i), 64);
    blocks.push_back(block);
    requested += size;
  }
  LiveAndAccumulated now = ReadSampleStatistics(ClassNumber(64));
  EXPECT_EQ(now.live.count - before_small_.live.count, kBlocks);
  EXPECT_EQ(now.live.requested - before_small_.live.requested, requested);
  for (size_t i = 0; i < kBlocks; i++) {
    for (size_t byte = 0; byte < 64; byte++) ASSERT_EQ(blocks[i][byte], static_cast<unsigned char>(i));
    Free(blocks[i]);
  }
  now = ReadSampleStatistics(ClassNumber(64));
  EXPECT_EQ(now.live.count, before_small_.live.count);
  EXPECT_EQ(now.live.requested, before_small_.live.requested);
  EXPECT_EQ(now.accumulated.count - before_small_.accumulated.count, kBlocks);
  EXPECT_EQ(now.accumulated.requested - before_small_.accumulated.requested, requested);
}

TEST_F(SampleStatisticsTest, RequestedSizesOfLargeSamples) {
  SamplingOn sampling(0);
  void* block = Allocate(100001);
  LiveAndAccumulated now = ReadSampleStatistics(ClassNumber(114688));
  EXPECT_EQ(now.live.count - before_large_.live.count, 1u);
  EXPECT_EQ(now.live.requested - before_large_.live.requested, 100001u);
  block = Reallocate(block, 100002);
  now = ReadSampleStatistics(ClassNumber(114688));
  EXPECT_EQ(now.live.requested - before_large_.live.requested, 100002u);
  EXPECT_EQ(now.accumulated.count - before_large_.accumulated.count, 2u);
  Free(block);
  EXPECT_EQ(ReadSampleStatistics(ClassNumber(114688)).live.count, before_large_.live.count);
}

}  // namespace
}  // namespace heaptap
