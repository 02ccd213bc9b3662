// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/base/mutex.h"
#include "userspace/base/require.h"

namespace heaptap::base {
namespace {

TEST(Mutex, IsTakenInTheOrderOfRanks) {
  Mutex question(LockRank::kQuestion);
  Mutex data;
  Mutex messages(LockRank::kMessages);
  for (int i = 0; i < 2; i++) {
    const MutexLock first(&question);
    {
      const MutexLock second(&data);
      const MutexLock third(&messages);
    }
    const MutexLock again(&data);
  }
}

TEST(MutexDeathTest, InAnotherOrderIsADefect) {
  if (!ChecksPreconditions()) return;
  Mutex data;
  Mutex other;
  Mutex question(LockRank::kQuestion);
  const MutexLock lock(&data);
  EXPECT_DEATH(MutexLock{&other}, "no mutex of this or a later rank is held");
  EXPECT_DEATH(MutexLock{&question}, "no mutex of this or a later rank is held");
}

}  // namespace
}  // namespace heaptap::base
