// SPDX-License-Identifier: Apache-2.0
//
// The last attempt before an allocation fails: collects blocks that were freed to other heaps, slabs that heaps keep,
// and huge blocks that are kept. The caller tries again, and notes whether the collection has helped.
//
// A program that keeps asking for memory that is not there must not wait for a collection each time. After each
// collection that has not helped, about twice as many allocations as before fail without one.
//
// Any thread, after StartProcess, with no lock held and in no HeapScope. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_CORE_COLLECTION_H_
#define HEAPTAP_ALLOCATOR_CORE_COLLECTION_H_

namespace heaptap {

// False: nothing was collected, because a recent collection has not helped.
bool CollectMemory();
// Called after a collection. `has_helped`: the allocation has then found memory.
void NoteCollection(bool has_helped);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_COLLECTION_H_
