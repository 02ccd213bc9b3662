// SPDX-License-Identifier: Apache-2.0
//
// The numbers of the counts of a thread, by stack id.
//
// Not thread-safe, and not for use while another function of the same object runs. Zero-initialised state is empty.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_STACK_NUMBERS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_STACK_NUMBERS_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/sampling/growing_array.h"

namespace heaptap {

class StackNumbers {
 public:
  // 0: the stack has none.
  uint32_t Find(uint64_t stack_id) const {
    if (table_.size() == 0) return 0;
    uint64_t i = stack_id;
    while (At(i).number != 0 && At(i).stack_id != stack_id) i++;
    return At(i).number;
  }

  // Does nothing if there is no memory. REQUIRES: Find returns 0 for the stack; the number is not 0.
  void Put(uint64_t stack_id, uint32_t number) {
    HEAPTAP_ASSERT(number != 0);
    if (used_ * 2 >= table_.size() && !Grow()) return;
    uint64_t i = stack_id;
    while (At(i).number != 0) i++;
    table_[i & (table_.size() - 1)] = {stack_id, number};
    used_++;
  }

  void Clear() {
    table_.Clear();
    used_ = 0;
  }

 private:
  struct Element {
    uint64_t stack_id;
    uint32_t number;  // 0: there is no element here
  };
  static constexpr uint32_t kLeastSize = 256;  // a power of two

  // The kernel's stack ids are hashes.
  const Element& At(uint64_t i) const { return table_[i & (table_.size() - 1)]; }

  bool Grow() {
    GrowingArray<Element> old{};
    old.Swap(table_);
    const uint32_t size = old.size() == 0 ? kLeastSize : old.size() * 2;
    if (!table_.Reserve(size)) {
      old.Swap(table_);
      return false;
    }
    table_.Append(size);
    used_ = 0;
    for (uint32_t i = 0; i < old.size(); i++) {
      if (old[i].number != 0) Put(old[i].stack_id, old[i].number);
    }
    old.Clear();
    return true;
  }

  GrowingArray<Element> table_;  // its size is a power of two
  uint32_t used_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_STACK_NUMBERS_H_
