// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "userspace/service/answer_processes.h"

namespace heaptap::service {
namespace {

constexpr uint64_t kProcess = 1;
constexpr uint64_t kOther = 2;
constexpr unsigned kShortLimitSeconds = 1;

absl::Status WaitForEver() {
  for (;;) pause();
}

TEST(AnswerProcesses, SuccessAndFailureComeBack) {
  AnswerProcesses answers;
  ASSERT_TRUE(answers.Start(kProcess, [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  ASSERT_TRUE(answers.Start(kProcess, [] { return absl::UnknownError("test: this line is expected"); }).ok());
  EXPECT_EQ(answers.WaitFor(kOther), 0);
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
  EXPECT_EQ(answers.WaitFor(kProcess), 0) << "each is counted once";
}

// An exception would go through this test's own handlers, in a copy of the whole process.
TEST(AnswerProcesses, WhatThrowsEndsTheChildAlone) {
  AnswerProcesses answers;
  ASSERT_TRUE(answers
                  .Start(kProcess,
                         []() -> absl::Status {
                           signal(SIGABRT, SIG_DFL);
                           const rlimit none = {0, 0};
                           setrlimit(RLIMIT_CORE, &none);
                           throw std::bad_alloc();
                         })
                  .ok());
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
}

TEST(AnswerProcesses, WhatBlocksIsEnded) {
  AnswerProcesses answers(kShortLimitSeconds);
  ASSERT_TRUE(answers.Start(kProcess, WaitForEver).ok());
  EXPECT_EQ(answers.Reap(), 0) << "its status has not been collected before";
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
}

TEST(AnswerProcesses, AStrangersEndIsNobodysConcern) {
  AnswerProcesses answers(kShortLimitSeconds);
  ASSERT_TRUE(answers.Start(AnswerProcesses::kUnrecorded, WaitForEver).ok());
  EXPECT_EQ(answers.WaitFor(AnswerProcesses::kUnrecorded), 0);
}

TEST(AnswerProcesses, AreBoundedInNumber) {
  AnswerProcesses answers(kShortLimitSeconds);
  for (size_t i = 0; i < AnswerProcesses::kMaxRunning; i++) {
    EXPECT_TRUE(answers.HasRoom(kProcess + i));
    ASSERT_TRUE(answers.Start(kProcess + i, WaitForEver).ok());
  }
  EXPECT_FALSE(answers.HasRoom(kProcess + AnswerProcesses::kMaxRunning));
  EXPECT_TRUE(absl::IsResourceExhausted(answers.Start(kProcess + AnswerProcesses::kMaxRunning, WaitForEver)));
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
  EXPECT_TRUE(answers.HasRoom(kProcess));
}

TEST(AnswerProcesses, OneProcessLeavesRoomForOthers) {
  AnswerProcesses answers(kShortLimitSeconds);
  for (size_t i = 0; i < AnswerProcesses::kMaxRunningOfOne; i++) ASSERT_TRUE(answers.Start(kProcess, WaitForEver).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(answers.Start(kProcess, WaitForEver)));
  for (size_t i = 0; i < AnswerProcesses::kMaxRunningOfUnrecorded; i++) {
    ASSERT_TRUE(answers.Start(AnswerProcesses::kUnrecorded, WaitForEver).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(answers.Start(AnswerProcesses::kUnrecorded, WaitForEver)));
  EXPECT_TRUE(answers.Start(kOther, WaitForEver).ok());
}

TEST(AnswerProcesses, OfADroppedProcessNothingIsRemembered) {
  AnswerProcesses answers;
  const auto fail = [] { return absl::UnknownError("test: this line is expected"); };
  ASSERT_TRUE(answers.Start(kProcess, fail).ok());
  answers.Drop(kProcess);
  EXPECT_FALSE(answers.IsRunning(kProcess));
  EXPECT_EQ(answers.WaitFor(AnswerProcesses::kUnrecorded), 0);
  EXPECT_EQ(answers.TakeFailures(kProcess), 0);
}

// They inherit the collector's sockets and locks.
TEST(AnswerProcesses, EndWithTheCollector) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  constexpr unsigned kLongLimitSeconds = 3600;  // longer than the test may run
  const pid_t collector = fork();
  ASSERT_GE(collector, 0);
  if (collector == 0) {
    close(ends[0]);
    AnswerProcesses answers(kLongLimitSeconds);
    const bool started = answers
                             .Start(kProcess,
                                    [&] {
                                      [[maybe_unused]] const ssize_t put = write(ends[1], ".", 1);
                                      return WaitForEver();
                                    })
                             .ok();
    if (started) pause();
    _exit(1);
  }
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  kill(collector, SIGKILL);
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "the end of the last process that has the pipe";
  waitpid(collector, nullptr, 0);
  close(ends[0]);
}

TEST(AnswerProcesses, HappenInAnotherProcess) {
  AnswerProcesses answers;
  bool changed = false;
  ASSERT_TRUE(answers
                  .Start(kProcess,
                         [&] {
                           changed = true;
                           return absl::OkStatus();
                         })
                  .ok());
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  EXPECT_FALSE(changed);
}

}  // namespace
}  // namespace heaptap::service
