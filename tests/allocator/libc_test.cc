// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/libc.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <thread>

#include "allocator/platform/system.h"

namespace heaptap {
namespace {

TEST(Libc, CountsThreads) {
  const uint64_t before = ThreadCount();
  ASSERT_GE(before, 1u);
  std::latch counted(1);
  std::thread other([&] { counted.wait(); });
  EXPECT_EQ(ThreadCount(), before + 1);
  EXPECT_FALSE(libc::IsSingleThreaded());
  counted.count_down();
  other.join();
}

TEST(Libc, HasAllFunctionsOfThreads) {
  const libc::ThreadFunctions functions = libc::FindThreadFunctions();
  ASSERT_TRUE(functions);
  EXPECT_EQ(functions.create, &pthread_create);
  EXPECT_EQ(functions.join, &pthread_join);
  EXPECT_EQ(functions.key_create, &pthread_key_create);
  EXPECT_EQ(functions.setspecific, &pthread_setspecific);
}

TEST(Libc, KnowsTheEnvironmentBeforeLibcDoes) {
  ASSERT_EQ(libc::Environment(), environ);
  // Nothing has moved the environment since the start, so the first variable of the initial stack is there.
  char** const saved = environ;
  environ = nullptr;
  char** const initial = libc::Environment();
  environ = saved;
  ASSERT_NE(initial, nullptr);
  EXPECT_NE(strchr(initial[0], '='), nullptr);
}

TEST(Libc, CallsHandlersAtForkAndExit) {
  static int output[2];
  ASSERT_EQ(pipe(output), 0);
  static const auto say = [](char letter) { ASSERT_EQ(write(output[1], &letter, 1), 1); };
  const pid_t child = fork();
  if (child == 0) {
    libc::AtExit([] { say('e'); });
    libc::AtFork([] { say('b'); }, [] { say('p'); }, [] { say('c'); });
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(0);
    waitpid(grandchild, nullptr, 0);
    exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(output[1]);
  char said[8] = {};
  ASSERT_EQ(read(output[0], said, sizeof(said) - 1), 4);
  close(output[0]);
  EXPECT_EQ(said[0], 'b');
  EXPECT_EQ(said[3], 'e');
  EXPECT_NE(strchr(said, 'p'), nullptr);
  EXPECT_NE(strchr(said, 'c'), nullptr);
}

}  // namespace
}  // namespace heaptap
