// SPDX-License-Identifier: Apache-2.0
//
// Exported symbols, and the bounds of the library's code.
#ifndef HEAPTAP_ALLOCATOR_API_SYMBOLS_H_
#define HEAPTAP_ALLOCATOR_API_SYMBOLS_H_

#include "allocator/process/process.h"

#define HEAPTAP_EXPORT __attribute__((visibility("default")))
#define HEAPTAP_C_EXPORT extern "C" HEAPTAP_EXPORT
// Declares another name for a function of the same file, with its attributes: GCC warns if they differ.
#ifdef __clang__
#define HEAPTAP_ALIAS(name) __attribute__((alias(#name)))
#else
#define HEAPTAP_ALIAS(name) __attribute__((alias(#name), copy(name)))
#endif

namespace heaptap {

inline bool IsInAllocator(const void* function) {
  return function >= heaptap_text_begin && function < heaptap_text_end;
}

// Whether the program uses this allocator. An allocator that is linked into the program takes precedence over a
// preloaded library. Any thread, any time.
bool IsInUse();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_API_SYMBOLS_H_
