// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "gtest/gtest.h"
#include "tests/unit/support/child.h"
#include "userspace/process/memory_use.h"

namespace heaptap::process {
namespace {

TEST(MemoryUse, OfThisProcess) { EXPECT_GT(ReadMemoryUse(getpid()).resident_bytes, 0); }

TEST(MemoryUse, OfAProcessThatHasEndedIsUnknown) {
  const Child child;
  EXPECT_GT(ReadMemoryUse(child.pid()).resident_bytes, 0);
  child.Kill();
  EXPECT_EQ(ReadMemoryUse(child.pid()).resident_bytes, -1) << "its address space is gone, but not the process";
  EXPECT_EQ(ReadMemoryUse(0).resident_bytes, -1);
}

}  // namespace
}  // namespace heaptap::process
