// SPDX-License-Identifier: Apache-2.0
//
// Looking at what other threads may be changing.
#ifndef HEAPTAP_ALLOCATOR_CORE_PEEK_H_
#define HEAPTAP_ALLOCATOR_CORE_PEEK_H_

#include <stdint.h>

namespace heaptap {

// Reads a word that its owner may be changing, even on the fast paths, where the word is not a std::atomic. Returns one
// of the word's values. ThreadSanitizer must not check this access.
template <typename Word>
[[gnu::noinline, gnu::no_sanitize_thread]] Word Peek(const Word& word) {
  static_assert(sizeof(Word) <= sizeof(uint64_t));
  Word value;
  __atomic_load(&word, &value, __ATOMIC_RELAXED);
  return value;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_PEEK_H_
