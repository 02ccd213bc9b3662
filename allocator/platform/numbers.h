// SPDX-License-Identifier: Apache-2.0
//
// Sizes and addresses: powers of two, pages. Pure; any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_NUMBERS_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_NUMBERS_H_

#include <stddef.h>

namespace heaptap {

inline constexpr unsigned kPageShift = 12;
inline constexpr size_t kPageSize = size_t{1} << kPageShift;

constexpr bool IsPowerOfTwo(size_t number) { return number != 0 && (number & (number - 1)) == 0; }

// Round to a multiple of `unit`, a power of two. RoundUp of a number above the largest multiple is 0.
constexpr size_t RoundDown(size_t number, size_t unit) { return number & ~(unit - 1); }
constexpr size_t RoundUp(size_t number, size_t unit) { return RoundDown(number + unit - 1, unit); }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_NUMBERS_H_
