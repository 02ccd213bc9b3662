// SPDX-License-Identifier: Apache-2.0
//
// Memory for an allocation that fails without: blocks that were freed to other heaps, slabs that heaps keep, huge
// blocks that are kept. The caller tries again, and notes whether that has helped.
//
// A program that goes on asking for what there is not must not wait for a collection each time: after each vain one,
// twice as many failures pass without one.
//
// Any thread, after StartProcess, with no lock held and in no HeapScope. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_CORE_COLLECTION_H_
#define HEAPTAP_ALLOCATOR_CORE_COLLECTION_H_

namespace heaptap {

// False: not this time.
bool CollectMemory();
// After CollectMemory.
void NoteCollection(bool has_helped);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_COLLECTION_H_
