// SPDX-License-Identifier: Apache-2.0
//
// Which allocations of a guest are samples.
//
// The law is the same as in the full library (sampling/README.md): with R = 2^lg mean bytes between samples, an
// allocation of usable size s is a sample with probability p(s) = 1 - exp(-s / R), independently of all others. The
// usable size is the host's, and finding it out would take a call. So the fast path charges each allocation with a
// number of bytes that is hardly ever below its usable size:
//
//   charge(n) = 2 * n + 24                  n: the requested size, plus the alignment if there is one
//
// It subtracts the charge from the thread's countdown, which is exponential with mean R. Where the countdown ends, the
// allocation is a candidate, with probability p(charge). The slow path asks for the usable size and takes a candidate
// as a sample with probability p(s) / p(charge). If s is above the charge, it takes every candidate, and the weight is
// s / p(charge), so that estimates stay unbiased.
//
// The countdown has two parts: `left`, which the fast path sees, and `more` behind it. `left` is never above kStride,
// so that a thread notices a change of the interval soon. The exponential law has no memory, so the rest of a countdown
// may be dropped with each change.
//
// For the calling thread. The fast path is in thread.h.
#ifndef HEAPTAP_ALLOCATOR_GUEST_DECISION_H_
#define HEAPTAP_ALLOCATOR_GUEST_DECISION_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

struct Decision {
  uint64_t weight;  // 0: the allocation is not a sample
  size_t usable;    // of a sample: the usable size that the host's block would have
};

// The slow path: decides about the allocation that has just been charged, and begins the next countdown. `alignment`: 1
// if the caller asked for none. May call the host. No lock held, in no HeapScope. errno is kept.
Decision Decide(size_t size, size_t alignment);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_DECISION_H_
