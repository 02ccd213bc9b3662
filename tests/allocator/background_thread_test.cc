// SPDX-License-Identifier: Apache-2.0
//
// The background thread: an idle process gives its memory back.
#include "allocator/process/background_thread.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "settable_clock.h"
#include "support.h"

namespace heaptap {
namespace {

using std::chrono::steady_clock;
using testing::kMiB;

template <typename Condition>
bool Wait(Condition condition) {
  const auto end = steady_clock::now() + std::chrono::seconds(30);
  while (!condition() && steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

uint64_t Dirty() { return ReadFigure(&heaptap_statistics::dirty); }

// The task with this name; "": there is none.
std::string TaskCalled(const std::string& name) {
  std::string found;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* const task = readdir(tasks)) {
    std::string comm;
    std::getline(std::ifstream(std::string("/proc/self/task/") + task->d_name + "/comm"), comm);
    if (comm == name) found = task->d_name;
  }
  closedir(tasks);
  return found;
}

class BackgroundThread : public ::testing::Test {
 protected:
  BackgroundThread() { EXPECT_FALSE(HasBackgroundThread()); }
  ~BackgroundThread() override {
    StopBackgroundThread();
    SetDirtyDecay(1000);
    Trim();
  }
};

void FreeMuch() {
  std::vector<void*> blocks;
  for (int i = 0; i < 20000; i++) {
    blocks.push_back(Allocate(3000));
    memset(blocks.back(), 1, 3000);
  }
  for (void* block : blocks) Free(block);
}

TEST_F(BackgroundThread, AnIdleProcessGivesMemoryBack) {
  constexpr uint64_t kDecay = 100;
  testing::SettableClock clock;
  SetDirtyDecay(kDecay);
  // What earlier tests have left grows old here, and not while this test frees memory.
  Trim();
  testing::TakeSlowPaths();
  FreeMuch();
  const uint64_t dirty = Dirty();
  ASSERT_GT(dirty, 50 * kMiB);
  ASSERT_TRUE(StartBackgroundThread());
  EXPECT_TRUE(HasBackgroundThread());
  clock.Advance(kDecay - 1);
  testing::AwaitBackgroundRound();
  EXPECT_EQ(Dirty(), dirty) << "too early";
  clock.Advance(1);
  testing::AwaitBackgroundRound();
  EXPECT_EQ(Dirty(), 0u);
  StopBackgroundThread();
  EXPECT_FALSE(HasBackgroundThread());
}

TEST_F(BackgroundThread, NeverMeansNever) {
  constexpr uint64_t kYear = uint64_t{365} * 24 * 3600 * 1000;
  testing::SettableClock clock;
  SetDirtyDecay(-1);
  ASSERT_TRUE(StartBackgroundThread());
  FreeMuch();
  const uint64_t dirty = Dirty();
  ASSERT_GT(dirty, 50 * kMiB);
  clock.Advance(kYear);
  testing::AwaitBackgroundRound();
  EXPECT_EQ(Dirty(), dirty);
  SetDirtyDecay(0);
  testing::AwaitBackgroundRound();
  EXPECT_EQ(Dirty(), 0u);
}

TEST_F(BackgroundThread, StartsAndStopsAtAnyTime) {
  StopBackgroundThread();
  for (int i = 0; i < 50; i++) {
    EXPECT_TRUE(StartBackgroundThread());
    EXPECT_TRUE(StartBackgroundThread());
    StopBackgroundThread();
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; i++) {
        StartBackgroundThread();
        Free(Allocate(100000));
        StopBackgroundThread();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Signals are for the program's own threads.
TEST_F(BackgroundThread, BlocksSignals) {
  ASSERT_TRUE(StartBackgroundThread());
  std::string task;
  ASSERT_TRUE(Wait([&] { return !(task = TaskCalled("heaptap-purge")).empty(); }));
  std::string line;
  std::ifstream status("/proc/self/task/" + task + "/status");
  while (std::getline(status, line) && line.rfind("SigBlk:", 0) != 0) continue;
  const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
  for (const int signal : {SIGUSR1, SIGINT, SIGTERM, SIGALRM}) EXPECT_TRUE(blocked >> (signal - 1) & 1) << signal;
}

TEST_F(BackgroundThread, ChildOfAForkHasNone) {
  ASSERT_TRUE(StartBackgroundThread());
  const pid_t child = fork();
  if (child == 0) {
    bool right = !HasBackgroundThread();
#ifndef __SANITIZE_THREAD__  // which allows no threads after such a fork
    right = right && StartBackgroundThread() && HasBackgroundThread();
    StopBackgroundThread();
#endif
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(HasBackgroundThread());
}

}  // namespace
}  // namespace heaptap
