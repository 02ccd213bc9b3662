// SPDX-License-Identifier: Apache-2.0
//
// Random sequences on a few chunks, against a model that searches all units one by one.
#include "allocator/core/chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "allocator/platform/random.h"

namespace heaptap {
namespace {

struct Taken {
  Chunk* chunk;
  size_t first;
  size_t count;
};

bool IsFree(const Chunk* chunk, size_t unit) { return (chunk->free_bits[unit / 64] >> unit % 64 & 1) != 0; }

class ChunksTest : public ::testing::Test {
 protected:
  static constexpr size_t kChunks = 5;
  static constexpr uint32_t kUnits[kChunks] = {512, 64, 512, 128, 511};
  // What runs are long.
  static constexpr size_t kLengths[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 112, 256};

  void SetUp() override {
    for (size_t i = 0; i < kChunks; i++) {
      records_[i].units = kUnits[i];
      chunks_.Add(&records_[i]);
    }
  }

  static size_t Longest(const Chunk& chunk) {
    size_t longest = 0;
    for (size_t unit = 1, row = 0; unit < chunk.units; unit++) {
      row = IsFree(&chunk, unit) ? row + 1 : 0;
      longest = std::max(longest, row);
    }
    return longest;
  }

  size_t LongestOfAll() const {
    size_t longest = 0;
    for (const Chunk& chunk : records_) longest = std::max(longest, Longest(chunk));
    return longest;
  }

  void Take(size_t count, size_t alignment) {
    Place place = chunks_.Find(count, alignment);
    if (place.chunk == nullptr) {
      EXPECT_LT(LongestOfAll(), count + alignment - 1);
      return;
    }
    EXPECT_EQ(place.first % alignment, 0u);
    EXPECT_NE(place.first, 0u);
    for (size_t unit = place.first; unit < place.first + count; unit++) ASSERT_TRUE(IsFree(place.chunk, unit));
    chunks_.MarkUsed(place.chunk, place.first, count);
    for (size_t unit = place.first; unit < place.first + count; unit++) ASSERT_FALSE(IsFree(place.chunk, unit));
    taken_.push_back({place.chunk, place.first, count});
  }

  void Give(size_t which) {
    Taken taken = taken_[which];
    taken_[which] = taken_.back();
    taken_.pop_back();
    chunks_.MarkFree(taken.chunk, taken.first, taken.count);
  }

  void Check() const {
    size_t free = 0;
    for (const Chunk& chunk : records_) {
      EXPECT_EQ(chunk.longest, Longest(chunk));
      for (size_t unit = 0; unit < 512; unit++) free += IsFree(&chunk, unit);
    }
    size_t expected = 0;
    for (uint32_t units : kUnits) expected += units - 1;
    for (const Taken& taken : taken_) expected -= taken.count;
    EXPECT_EQ(free, expected);
  }

  Chunk records_[kChunks]{};
  Chunks chunks_;
  std::vector<Taken> taken_;
};

TEST_F(ChunksTest, FindsWhatThereIs) {
  Random random;
  random.Seed(1, 1);
  for (int step = 0; step < 24000; step++) {
    // It fills and empties by turns.
    bool fills = step / 1500 % 2 == 0;
    if (random.Next() % 10 < (fills ? 7u : 3u)) {
      size_t lengths = step / 3000 % 2 == 0 ? 4 : std::size(kLengths);
      Take(kLengths[random.Next() % lengths], random.Next() % 8 == 0 ? size_t{1} << random.Next() % 6 : 1);
    } else if (!taken_.empty()) {
      Give(random.Next() % taken_.size());
    }
    Check();
    if (HasFailure()) return;
  }
  while (!taken_.empty()) Give(0);
  Check();
}

TEST_F(ChunksTest, TakesTheBestFit) {
  // Only unit 7 of the last chunk, and units 5 and 6 of the second are free.
  for (Chunk& chunk : records_) chunks_.MarkUsed(&chunk, 1, chunk.units - 1);
  chunks_.MarkFree(&records_[1], 5, 2);
  chunks_.MarkFree(&records_[4], 7, 1);
  EXPECT_EQ(chunks_.Find(1, 1).chunk, &records_[4]);
  EXPECT_EQ(chunks_.Find(1, 1).first, 7u);
  EXPECT_EQ(chunks_.Find(2, 1).chunk, &records_[1]);
  EXPECT_EQ(chunks_.Find(2, 1).first, 5u);
  EXPECT_EQ(chunks_.Find(3, 1).chunk, nullptr);
}

// Places that are aligned by chance, behind more chunks than one search tries.
TEST(Chunks, SearchesForAlignmentGoOn) {
  constexpr size_t kMany = 100;
  Chunks chunks;
  std::vector<Chunk> records(kMany);
  for (size_t i = 0; i < kMany; i++) {
    records[i].units = 512;
    chunks.Add(&records[i]);
    chunks.MarkUsed(&records[i], 1, 511);
    chunks.MarkFree(&records[i], i == 50 ? 8 : 5, 4);
  }
  size_t searches = 1;
  while (chunks.Find(4, 4).chunk == nullptr && searches < kMany) searches++;
  EXPECT_EQ(chunks.Find(4, 4).chunk, &records[50]);
  EXPECT_LT(searches, kMany / 10);
}

}  // namespace
}  // namespace heaptap
