// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <sys/mman.h>
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

TEST(MemoryUse, AnonymousMemoryIsThatOfTheProcessAlone) {
  constexpr size_t kBytes = 64 << 20;
  constexpr int64_t kRest = 4 << 20;  // what the process may allocate or free besides
  EXPECT_GT(AnonymousBytes(getpid()), 0);
  EXPECT_LT(AnonymousBytes(getpid()), ReadMemoryUse(getpid()).resident_bytes);
  for (const bool is_shared : {false, true}) {
    SCOPED_TRACE(is_shared);
    const int64_t before = AnonymousBytes(getpid());
    const int kind = is_shared ? MAP_SHARED : MAP_PRIVATE;
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memset(memory, 1, kBytes);
    EXPECT_NEAR(AnonymousBytes(getpid()) - before, is_shared ? 0 : kBytes, kRest);
    munmap(memory, kBytes);
  }
  EXPECT_EQ(AnonymousBytes(0), -1);
}

}  // namespace
}  // namespace heaptap::process
