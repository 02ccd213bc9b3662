// SPDX-License-Identifier: Apache-2.0
//
// The kernel, or a signal handler's sample, may take what a thread holds back at any instruction. What it takes is
// forgotten afterwards, so an entry must be written before the count that includes it.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/sampling/pending_frees.h"
#include "recorder.h"
#include "single_step.h"

namespace heaptap {
namespace {

constexpr size_t kSize = 100;
constexpr uint64_t kFrees = 5;  // so few that the slot is not passed on

heaptap_free Number(uint64_t serial) { return {.address = serial << 12, .serial = serial}; }

TEST(PendingFreesSteps, AReaderFindsWholeEntriesOnly) {
  Free(Allocate(kSize));  // the thread has a heap, and so a slot
  const testing::FreesHeard heard;
  ReportFreesOfThread();
  // Entries of earlier samples are left in the slot.
  for (uint64_t i = 0; i < kFrees; i++) ReportFree(Number(1000 + i), kSize);
  ForgetFreesOfThread();

  uint64_t looks = 0;
  uint64_t counts_seen = 0;
  bool all_whole = true;
  for (uint64_t done = 0; done < kFrees; done++) {
    const heaptap_free freed = Number(2000 + done);
    const testing::SingleStep steps([&] {
      const ThreadFrees held = PendingFreesOfThread();
      const auto count = static_cast<uint32_t>(held.where);
      looks++;
      counts_seen |= uint64_t{1} << count;
      for (uint32_t i = 0; i < count; i++) {
        all_whole &= held.frees[i].serial == 2000 + i && held.frees[i].address == Number(2000 + i).address;
      }
    });
    ReportFree(freed, kSize);
  }
  EXPECT_TRUE(all_whole);
  EXPECT_GT(looks, kFrees * 10);
  EXPECT_EQ(counts_seen, (uint64_t{1} << (kFrees + 1)) - 1) << "each count was seen";
  ForgetFreesOfThread();
}

}  // namespace
}  // namespace heaptap
