// SPDX-License-Identifier: Apache-2.0
//
// The blocks that a thread keeps: each is given once, also to a signal handler that interrupts at any instruction.
#include "allocator/sampling/kept_blocks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>

#include "single_step.h"

namespace heaptap {
namespace {

KeptBlocks::Entry Number(uint64_t number) {
  return {reinterpret_cast<Slab*>(number << 16), reinterpret_cast<Block*>(number << 4)};
}
uint64_t NumberOf(const KeptBlocks::Entry& entry) { return reinterpret_cast<uint64_t>(entry.block) >> 4; }

constexpr unsigned kClass = 3;
constexpr unsigned kLargest = kSmallClasses - 1;

class KeptBlocksTest : public ::testing::Test {
 protected:
  std::unique_ptr<KeptBlocks> kept_{new KeptBlocks()};
  KeptBlocks::Entry entry_ = {};
};

TEST_F(KeptBlocksTest, TheLastOneComesFirst) {
  EXPECT_FALSE(kept_->Take(kClass, &entry_));
  for (uint64_t i = 1; i <= 3; i++) EXPECT_TRUE(kept_->Keep(kClass, Number(i)));
  EXPECT_FALSE(kept_->Take(kClass + 1, &entry_)) << "another class";
  for (uint64_t i = 3; i >= 1; i--) {
    ASSERT_TRUE(kept_->Take(kClass, &entry_));
    EXPECT_EQ(NumberOf(entry_), i);
  }
  EXPECT_FALSE(kept_->Take(kClass, &entry_));
  EXPECT_EQ(kept_->ForgetTaken(kClass), 3u);
  EXPECT_EQ(kept_->ForgetTaken(kClass), 0u);
}

TEST_F(KeptBlocksTest, EachClassHasABound) {
  for (unsigned c = 0; c < kSmallClasses; c++) {
    uint64_t number = 0;
    while (number < 100 && kept_->Keep(c, Number(number + 1))) number++;
    EXPECT_EQ(number, KeptBlocks::MostOf(c)) << c;
    EXPECT_LE(number * kClassSize[c], KeptBlocks::kMostBytes);
  }
  EXPECT_EQ(KeptBlocks::MostOf(0), KeptBlocks::kMost);
  EXPECT_EQ(KeptBlocks::MostOf(kLargest), KeptBlocks::kMostBytes / kClassSize[kLargest]);
}

TEST_F(KeptBlocksTest, ThePoolIsAskedNowAndThen) {
  for (uint32_t i = 0; i < KeptBlocks::kMostTaken; i++) {
    ASSERT_TRUE(kept_->Keep(kClass, Number(1)));
    ASSERT_TRUE(kept_->Take(kClass, &entry_));
  }
  EXPECT_TRUE(kept_->Keep(kClass, Number(1)));
  EXPECT_FALSE(kept_->Take(kClass, &entry_));
  EXPECT_EQ(kept_->ForgetTaken(kClass), KeptBlocks::kMostTaken);
  EXPECT_TRUE(kept_->Take(kClass, &entry_));
}

TEST_F(KeptBlocksTest, SomeOrAllGoBack) {
  for (uint64_t i = 1; i <= 5; i++) kept_->Keep(kClass, Number(i));
  KeptBlocks::Entry entries[KeptBlocks::kMost];
  EXPECT_EQ(kept_->TakeBack(kClass, 2, entries), 2u);
  EXPECT_EQ(NumberOf(entries[0]) + NumberOf(entries[1]), 9u);
  EXPECT_EQ(kept_->TakeBack(kClass, KeptBlocks::kMost, entries), 3u);
  EXPECT_EQ(kept_->TakeBack(kClass, KeptBlocks::kMost, entries), 0u);
  kept_->Keep(kClass, Number(1));
  kept_->Drop();
  EXPECT_FALSE(kept_->Take(kClass, &entry_));
}

#ifndef __SANITIZE_THREAD__
TEST_F(KeptBlocksTest, AHandlerMayInterruptAnything) {
  std::set<uint64_t> outside = {1, 2, 3, 4, 5, 6};
  bool all_once = true;
  uint64_t looks = 0, taken = 0;
  const auto take_out = [&](const KeptBlocks::Entry& entry) { all_once &= outside.insert(NumberOf(entry)).second; };
  for (uint64_t i = 1; i <= 6; i++) {
    outside.erase(i);
    ASSERT_TRUE(kept_->Keep(kClass, Number(i)));
  }
  for (int round = 0; round < 20; round++) {
    KeptBlocks::Entry mine = {};
    bool has_one = false;
    {
      const testing::SingleStep steps([&] {
        looks++;
        KeptBlocks::Entry his;
        if (!kept_->Take(kClass, &his)) return;
        taken++;
        take_out(his);
        outside.erase(NumberOf(his));
        if (!kept_->Keep(kClass, his)) outside.insert(NumberOf(his));
      });
      has_one = kept_->Take(kClass, &mine);
    }
    kept_->ForgetTaken(kClass);
    if (!has_one) continue;
    take_out(mine);
    outside.erase(NumberOf(mine));
    const testing::SingleStep steps([&] {
      looks++;
      KeptBlocks::Entry his;
      if (!kept_->Take(kClass, &his)) return;
      taken++;
      if (!kept_->Keep(kClass, his)) outside.insert(NumberOf(his));
    });
    if (!kept_->Keep(kClass, mine)) outside.insert(NumberOf(mine));
  }
  EXPECT_TRUE(all_once);
  EXPECT_GT(looks, 100u);
  EXPECT_GT(taken, 50u);
  std::set<uint64_t> all = outside;
  KeptBlocks::Entry entries[KeptBlocks::kMost];
  const uint32_t left = kept_->TakeBack(kClass, KeptBlocks::kMost, entries);
  for (uint32_t i = 0; i < left; i++) EXPECT_TRUE(all.insert(NumberOf(entries[i])).second);
  EXPECT_EQ(all.size(), 6u);
}
#endif

}  // namespace
}  // namespace heaptap
