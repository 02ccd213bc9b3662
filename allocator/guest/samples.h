// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a guest: the samples. A sample lies in a sampled slab, in a run or in slots of its own, always in the
// range (range.h). It reports the usable size that the host's block would have, and has at least as many bytes.
//
// Any thread, any time, with no lock held. errno is kept, except where memory runs out.
#ifndef HEAPTAP_ALLOCATOR_GUEST_SAMPLES_H_
#define HEAPTAP_ALLOCATOR_GUEST_SAMPLES_H_

#include <stddef.h>

namespace heaptap {

// What the program asks for besides the size.
struct SampleTraits {
  size_t alignment = 1;  // a power of two
  bool zero = false;     // the block reads as zero, up to its usable size
};

// The slow path of each allocation function, after Charge: the block if the allocation is a sample. nullptr: it is
// none, and the host serves it.
void* TakeSample(size_t size, SampleTraits traits = {});

// Frees a block of the guest. A pointer at which none begins is reported and ignored. REQUIRES: IsInRange(pointer).
void FreeSample(void* pointer);

// The usable size. 0: no block begins there. REQUIRES: IsInRange(pointer).
size_t SampleUsableSize(const void* pointer);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_SAMPLES_H_
