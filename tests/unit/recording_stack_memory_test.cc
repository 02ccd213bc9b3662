// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "bpf/unwind.h"
#include "gtest/gtest.h"
#include "userspace/recording/stack_memory.h"

namespace heaptap::recording {
namespace {

std::vector<uint8_t> Bytes(size_t size, uint32_t seed) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; i++) bytes[i] = static_cast<uint8_t>((i + seed) * 2654435761U >> 13);
  return bytes;
}

TEST(StackMemory, WhatCopiesHaveInCommonIsKeptOnce) {
  constexpr size_t kBytes = 100 * HEAPTAP_CHUNK_BYTES;
  const std::vector<uint8_t> one = Bytes(kBytes, 1);
  std::vector<uint8_t> other = one;
  other[5] ^= 1;
  StackMemory memory;
  const StackMemory::Copy kept = memory.Keep(one);
  const size_t of_one = memory.bytes();
  EXPECT_GE(of_one, kBytes);
  EXPECT_LT(of_one, kBytes * 5 / 4);
  const StackMemory::Copy also_kept = memory.Keep(other);
  EXPECT_LT(memory.bytes() - of_one, kBytes / 25);
  EXPECT_EQ(StackMemory::Get(kept), one);
  EXPECT_EQ(StackMemory::Get(also_kept), other);
  memory.Drop(kept);
  EXPECT_EQ(StackMemory::Get(also_kept), other);
  EXPECT_EQ(memory.bytes(), of_one);
  memory.Drop(also_kept);
  EXPECT_EQ(memory.bytes(), 0);
}

TEST(StackMemory, OfAnySize) {
  StackMemory memory;
  for (const size_t size : {0, 1, HEAPTAP_CHUNK_BYTES - 1, HEAPTAP_CHUNK_BYTES, HEAPTAP_CHUNK_BYTES + 1}) {
    // All chunks are equal.
    const std::vector<uint8_t> zeros(size);
    const StackMemory::Copy kept = memory.Keep(zeros);
    EXPECT_EQ(StackMemory::Get(kept), zeros);
    memory.Drop(kept);
    EXPECT_EQ(memory.bytes(), 0) << size;
  }
}

}  // namespace
}  // namespace heaptap::recording
