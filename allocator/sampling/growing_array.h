// SPDX-License-Identifier: Apache-2.0
//
// An array in memory of its own, which grows. Its elements are plain data, and new ones are zero.
//
// Not thread-safe. Zero-initialised state is an empty array.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_GROWING_ARRAY_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_GROWING_ARRAY_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "allocator/platform/assert.h"
#include "allocator/platform/numbers.h"
#include "allocator/platform/system.h"

namespace heaptap {

template <typename Element>
class GrowingArray {
 public:
  uint32_t size() const { return size_; }
  size_t bytes() const { return bytes_; }
  Element& operator[](uint64_t index) { return elements_[index]; }
  const Element& operator[](uint64_t index) const { return elements_[index]; }
  const Element* data() const { return elements_; }

  // Makes sure that `more` elements fit. False: out of memory.
  bool Reserve(uint32_t more) {
    const size_t needed = (size_t{size_} + more) * sizeof(Element);
    if (needed <= bytes_) return true;
    size_t bytes = bytes_ == 0 ? kPageSize : bytes_;
    while (bytes < needed) bytes *= 2;
    void* const memory = MapAligned(bytes, kPageSize);
    if (memory == nullptr) return false;
    if (size_ != 0) memcpy(memory, elements_, size_ * sizeof(Element));
    if (bytes_ != 0) Unmap(elements_, bytes_);
    elements_ = static_cast<Element*>(memory);
    bytes_ = bytes;
    return true;
  }

  // Appends elements that are zero. REQUIRES: Reserve has made room for them.
  void Append(uint32_t count) {
    HEAPTAP_ASSERT((size_t{size_} + count) * sizeof(Element) <= bytes_);
    size_ += count;
  }

  // Exchanges the elements of two arrays.
  void Swap(GrowingArray& other) {
    const GrowingArray mine = *this;
    *this = other;
    other = mine;
  }

  void Clear() {
    if (bytes_ != 0) Unmap(elements_, bytes_);
    *this = {};
  }

 private:
  Element* elements_;
  uint32_t size_;
  size_t bytes_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_GROWING_ARRAY_H_
