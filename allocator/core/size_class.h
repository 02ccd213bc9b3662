// SPDX-License-Identifier: Apache-2.0
//
// Size classes: jemalloc's, so that usable sizes and the totals of profiles agree with jemalloc's.
//
//   8, 16, 32, 48, 64, 80, 96, 112, 128, then four for each doubling: 160, 192, 224, 256, 320, ...
//
// Slabs serve the first kSmallClasses classes, up to kSmallMaximum bytes. All sizes are bytes. Everything here is
// constant or pure; any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_CORE_SIZE_CLASS_H_
#define HEAPTAP_ALLOCATOR_CORE_SIZE_CLASS_H_

#include <stddef.h>
#include <stdint.h>

#include <array>

#include "allocator/platform/assert.h"
#include "allocator/platform/numbers.h"

namespace heaptap {

// Larger requests fail: the difference of two pointers into a block must be representable.
inline constexpr size_t kMaximumRequest = PTRDIFF_MAX;
// The largest class that is not above kMaximumRequest.
inline constexpr size_t kLargestClass = size_t{7} << 60;
// The first class that jemalloc does not serve from slabs. Its programs treat such blocks as large.
inline constexpr size_t kLargeMinimum = 16 * 1024;

inline constexpr unsigned kSmallClasses = 41;
inline constexpr size_t kSmallMaximum = 32 * 1024;

// The smallest class that holds `size` bytes. 0 if there is none (size > kMaximumRequest).
constexpr size_t RoundUpToClass(size_t size) {
  if (size <= 8) return 8;
  if (size <= 128) return RoundUp(size, 16);
  if (size > kMaximumRequest) return 0;
  unsigned log2 = 63 - __builtin_clzll(size - 1);
  size_t spacing = size_t{1} << (log2 - 2);
  return RoundUp(size, spacing);
}

// The usable size of an aligned allocation, by jemalloc's rules (its sz_sa2u): a class whose blocks are always aligned
// if that is cheap, else at least 16 KiB. `alignment` is a power of two. 0 if there is no such class.
constexpr size_t RoundUpToAlignedClass(size_t size, size_t alignment) {
  constexpr size_t kSmallLimit = 14 * 1024;
  if (size <= kSmallLimit && alignment <= kPageSize) {
    size_t usable = RoundUpToClass(RoundUp(size, alignment));
    if (usable < kLargeMinimum) return usable;
  }
  return size <= kLargeMinimum ? kLargeMinimum : RoundUpToClass(size);
}

// The number of a class in the order of sizes. REQUIRES: `size` is a class size.
constexpr unsigned ClassNumber(size_t size) {
  HEAPTAP_ASSERT(size == RoundUpToClass(size));
  if (size <= 128) return static_cast<unsigned>(size / 16);
  unsigned log2 = 63 - __builtin_clzll(size - 1);
  constexpr unsigned kFirst = 9;  // the number of 160, the first of four classes above 2^7
  return kFirst + (log2 - 7) * 4 + static_cast<unsigned>((size - 1 - (size_t{1} << log2)) >> (log2 - 2));
}

// The number of all classes.
inline constexpr unsigned kClasses = [] {
  unsigned count = 0;
  for (size_t size = 8; size != 0 && size <= kMaximumRequest; size = RoundUpToClass(size + 1)) count++;
  return count;
}();

// The classes that are whole pages, in order: 4, 8, 12, 16, 20, ... KiB. From kEveryClassIsPages on, all classes are
// whole pages.
inline constexpr size_t kEveryClassIsPages = 4 * kPageSize;
inline constexpr unsigned kPageClasses = kClasses - ClassNumber(kEveryClassIsPages) + 3;

// The number, among these classes, of the largest that is at most `size`. REQUIRES: `size` is a positive multiple of
// kPageSize.
constexpr unsigned PageClassNumber(size_t size) {
  HEAPTAP_ASSERT(size != 0 && size % kPageSize == 0);
  if (size < kEveryClassIsPages) return static_cast<unsigned>(size / kPageSize) - 1;
  size_t size_class = RoundUpToClass(size);
  unsigned number = ClassNumber(size_class) - ClassNumber(kEveryClassIsPages) + 3;
  return size_class == size ? number : number - 1;
}

inline constexpr std::array<uint32_t, kSmallClasses> kClassSize = [] {
  std::array<uint32_t, kSmallClasses> sizes{};
  size_t size = 8;
  for (uint32_t& entry : sizes) {
    entry = size;
    size = RoundUpToClass(size + 1);
  }
  return sizes;
}();
static_assert(kClassSize[kSmallClasses - 1] == kSmallMaximum);
static_assert(ClassNumber(8) == 0 && ClassNumber(kSmallMaximum) == kSmallClasses - 1);

namespace size_class_internal {

// Entry i is the number of the smallest class that holds i * kStep bytes.
template <size_t kStep, size_t kMaximum>
constexpr std::array<uint8_t, kMaximum / kStep + 1> MakeTable() {
  std::array<uint8_t, kMaximum / kStep + 1> table{};
  unsigned number = 0;
  for (size_t i = 0; i < table.size(); i++) {
    while (kClassSize[number] < i * kStep) number++;
    table[i] = number;
  }
  return table;
}

}  // namespace size_class_internal

// Two tables give the class of a small size. The first has a byte for each size, which saves two instructions of about
// fifty in malloc. Classes above kFineMaximum are multiples of kCoarseStep.
inline constexpr size_t kFineMaximum = 1024;
inline constexpr size_t kCoarseStep = 256;
inline constexpr auto kFineTable = size_class_internal::MakeTable<1, kFineMaximum>();
inline constexpr auto kCoarseTable = size_class_internal::MakeTable<kCoarseStep, kSmallMaximum>();

// The number of the smallest class that holds `size` bytes. REQUIRES: size <= kSmallMaximum.
constexpr unsigned ClassOf(size_t size) {
  HEAPTAP_ASSERT(size <= kSmallMaximum);
  return size <= kFineMaximum ? kFineTable[size] : kCoarseTable[(size + kCoarseStep - 1) / kCoarseStep];
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_SIZE_CLASS_H_
