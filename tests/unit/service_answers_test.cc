// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "userspace/service/answers.h"

namespace heaptap::service {
namespace {

constexpr uint64_t kProcess = 1;
constexpr uint64_t kOther = 2;
constexpr unsigned kShortLimitSeconds = 1;

absl::Status WaitForEver() {
  for (;;) pause();
}

TEST(Answers, SuccessAndFailureComeBack) {
  Answers answers;
  ASSERT_TRUE(answers.Start(kProcess, [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(answers.WaitFor(kProcess), 0);
  ASSERT_TRUE(answers.Start(kProcess, [] { return absl::UnknownError("test: this line is expected"); }).ok());
  EXPECT_EQ(answers.WaitFor(kOther), 0);
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
  EXPECT_EQ(answers.WaitFor(kProcess), 0) << "each is counted once";
}

TEST(Answers, WhatBlocksIsEnded) {
  Answers answers(kShortLimitSeconds);
  ASSERT_TRUE(answers.Start(kProcess, WaitForEver).ok());
  EXPECT_EQ(answers.Reap(), 0) << "nobody waits for it before";
  EXPECT_EQ(answers.WaitFor(kProcess), 1);
}

TEST(Answers, AStrangersEndIsNobodysConcern) {
  Answers answers(kShortLimitSeconds);
  ASSERT_TRUE(answers.Start(Answers::kStranger, WaitForEver).ok());
  EXPECT_EQ(answers.WaitFor(Answers::kStranger), 0);
}

TEST(Answers, AreBoundedInNumber) {
  Answers answers(kShortLimitSeconds);
  for (size_t i = 0; i < Answers::kMaxRunning; i++) ASSERT_TRUE(answers.Start(kProcess, WaitForEver).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(answers.Start(kProcess, WaitForEver)));
  EXPECT_EQ(answers.WaitFor(kProcess), static_cast<int>(Answers::kMaxRunning));
}

TEST(Answers, HappenInAnotherProcess) {
  Answers answers;
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
