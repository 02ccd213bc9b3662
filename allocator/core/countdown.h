// SPDX-License-Identifier: Apache-2.0
//
// For each class, how many allocations precede the next one that the observer wants to see (observer.h). A heap makes
// at most that many blocks ready, so the wanted allocation finds none and takes its slow path.
//
// Not thread safe: each heap has its own countdown.
#ifndef HEAPTAP_ALLOCATOR_CORE_COUNTDOWN_H_
#define HEAPTAP_ALLOCATOR_CORE_COUNTDOWN_H_

#include <stdint.h>

#include "allocator/core/size_class.h"
#include "allocator/platform/assert.h"

namespace heaptap {

class Countdown {
 public:
  // More allocations than a process can make; half of the range, so that TakeBack cannot overflow.
  static constexpr uint64_t kNever = uint64_t{1} << 62;

  // How many allocations of the class precede the wanted one. 0: the current allocation is the wanted one.
  uint64_t Allowance(unsigned size_class) const { return until_[size_class] - 1; }

  // `count` blocks were made ready. REQUIRES: count <= Allowance(size_class).
  void HandOut(unsigned size_class, uint64_t count) {
    HEAPTAP_ASSERT(count <= Allowance(size_class));
    until_[size_class] -= count;
  }

  // `count` blocks that were made ready were not allocated after all.
  void TakeBack(unsigned size_class, uint64_t count) { until_[size_class] += count; }

 protected:
  // REQUIRES: 1 <= until <= kNever.
  void Set(unsigned size_class, uint64_t until) {
    HEAPTAP_ASSERT(until >= 1 && until <= kNever);
    until_[size_class] = until;
  }

 private:
  uint64_t until_[kSmallClasses];  // >= 1
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_COUNTDOWN_H_
