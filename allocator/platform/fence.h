// SPDX-License-Identifier: Apache-2.0
//
// Memory orders that cost nothing on x86, where they restrict only the compiler, in forms that keep the fast paths of
// malloc and free as short as they are.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_FENCE_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_FENCE_H_

#include <stdint.h>

#include <atomic>

namespace heaptap {

// ThreadSanitizer does not know fences, so in its builds the accesses beside this one have a memory order of their own.
inline void Fence([[maybe_unused]] std::memory_order order) {
#ifndef __SANITIZE_THREAD__
  std::atomic_thread_fence(order);
#endif
}

// Lowers a number that only the calling thread changes. Release: for a thread that loads the number with acquire. True:
// the number is 0 now.
[[gnu::always_inline]] inline bool ReleaseOne(uint32_t* number) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  // The compiler would need three instructions. An x86 store is a release.
  bool is_zero;
  asm("subl $1, %0" : "+m"(*number), "=@ccz"(is_zero) : : "memory");
  return is_zero;
#else
  const uint32_t left = *number - 1;
  __atomic_store_n(number, left, __ATOMIC_RELEASE);
  return left == 0;
#endif
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_FENCE_H_
