// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a guest: the samples. A sample lies in a sampled slab, in a run or in slots of its own, always in the
// range (range.h). It reports the usable size that the host's block would have, and has at least as many bytes.
//
// A large sample behaves like a block that the host has mapped (kUnmapped): only the part that the program uses costs
// memory, and the changes that the program makes to its pages (mprotect, mlock, madvise) end with the sample.
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

// The slow path of each allocation function, after Charge: the block if the allocation is a sample. nullptr: it is not
// a sample, or there is no memory for one. The host serves the allocation.
void* TakeSample(size_t size, SampleTraits traits = {});

// The end of this slow path, with the host's answer: if there was no memory for a sample but for the host's block, the
// sample is lost, which is counted. Returns `block`.
void* ServedByHost(void* block);

// realloc of a sample, which is freed. nullptr: out of memory, and the sample stays. If the address is in the range but
// not the guest's, the host serves the call. REQUIRES: IsInRange(pointer), `size` is not 0.
void* ResizeSample(void* pointer, size_t size);

// Whether the block, which TakeSample has just returned, reads as zero.
bool ReadsAsZero(const void* pointer);

// Frees a block of the guest. A pointer at which no block begins is reported and ignored; a pointer that is not the
// guest's goes to the host. REQUIRES: IsInRange(pointer).
void FreeSample(void* pointer);

// The usable size. 0: no block begins there. REQUIRES: IsInRange(pointer).
size_t SampleUsableSize(const void* pointer);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_SAMPLES_H_
