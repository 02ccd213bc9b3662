// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bpf/unwind.h"
#include "gtest/gtest.h"
#include "userspace/unwind/stack_copy.h"

namespace heaptap::unwind {
namespace {

constexpr size_t kChunk = HEAPTAP_CHUNK_BYTES;
constexpr uint64_t kProcess = 7;
constexpr uint64_t kAddress = 0x7fff'0000'0000;

std::vector<uint8_t> Bytes(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; i++) bytes[i] = static_cast<uint8_t>(i * 2654435761U >> 13);
  return bytes;
}

// Nothing: not all of the word is there.
std::optional<uint64_t> WordAt(const std::vector<uint8_t>& bytes, uint64_t offset) {
  uint64_t word;
  if (offset > bytes.size() || bytes.size() - offset < sizeof(word)) return std::nullopt;
  memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

void ExpectSame(const StackCopy& copy, const std::vector<uint8_t>& bytes) {
  ASSERT_EQ(copy.size(), bytes.size());
  for (uint64_t offset = 0; offset < bytes.size() + 2 * sizeof(uint64_t); offset++) {
    uint64_t word;
    const bool is_there = copy.ReadWord(offset, word);
    ASSERT_EQ(is_there ? std::optional(word) : std::nullopt, WordAt(bytes, offset)) << offset;
  }
  uint64_t word;
  EXPECT_FALSE(copy.ReadWord(~uint64_t{0}, word));
  EXPECT_FALSE(copy.ReadWord(~uint64_t{0} - sizeof(word) + 1, word));
}

TEST(StackCopy, AnyWordOfAnySize) {
  StackCopier copier;
  for (const size_t size : {size_t{0}, size_t{1}, kChunk - 1, kChunk, kChunk + 1, kChunk + 8, 3 * kChunk}) {
    ExpectSame(StackCopy(Bytes(size)), Bytes(size));
    ExpectSame(copier.Copy(kProcess, kAddress, Bytes(size)), Bytes(size));
  }
}

TEST(StackCopy, SharesWhatHasNotChanged) {
  StackCopier copier;
  const std::vector<uint8_t> first = Bytes(100 * kChunk);
  const StackCopy one = copier.Copy(kProcess, kAddress, first);
  EXPECT_EQ(copier.bytes_made(), 100 * (kChunk + StackCopier::kOverhead));
  // The next stack is larger, and a word has changed.
  std::vector<uint8_t> second = Bytes(kChunk);
  second.insert(second.end(), first.begin(), first.end());
  second[3 * kChunk + 5] ^= 1;
  const StackCopy other = copier.Copy(kProcess, kAddress - kChunk, second);
  EXPECT_EQ(copier.bytes_made(), 102 * (kChunk + StackCopier::kOverhead));
  EXPECT_EQ(one.parts().back(), other.parts().back());
  ExpectSame(one, first);
  ExpectSame(other, second);
  // Nothing is shared with another process.
  const StackCopy foreign = copier.Copy(kProcess + 1, kAddress, first);
  EXPECT_EQ(copier.bytes_made(), 202 * (kChunk + StackCopier::kOverhead));
  ExpectSame(foreign, first);
}

TEST(StackCopy, WhatIsGoneIsForgotten) {
  constexpr size_t kParts = 1000;
  StackCopier copier;
  const std::vector<uint8_t> memory = Bytes(kParts * kChunk);
  const StackCopy kept = copier.Copy(kProcess, kAddress, memory);
  for (uint64_t i = 0; i < 100; i++) {
    ExpectSame(copier.Copy(kProcess, kAddress + (i + 1) * memory.size(), Bytes(kChunk)), Bytes(kChunk));
    copier.Copy(kProcess + 1 + i, kAddress, memory);
    EXPECT_LE(copier.parts_known(), 8 * kParts);
  }
  const uint64_t before = copier.bytes_made();
  copier.Copy(kProcess, kAddress, memory);
  EXPECT_EQ(copier.bytes_made(), before);
}

}  // namespace
}  // namespace heaptap::unwind
