// SPDX-License-Identifier: Apache-2.0
//
// What sampling tells the layer above it about each sample. profiling/ defines these functions (profiling/listener.cc),
// so a call costs no more than any other.
//
// For the thread concerned, with no lock held and in no HeapScope. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_LISTENER_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_LISTENER_H_

#include <stddef.h>

namespace heaptap::listener {

// Before the calling thread's first sample, and before the next one after PrepareThreadAgain (events.h); with
// `is_first` false, before the next one after CallBeforeNextSample.
void PrepareThread(bool is_first);

// A sample was told of; is about to be told of as freed. `usable`: its size, bytes; `requested`: what the program asked
// for.
void AfterSample(const void* pointer, size_t usable, size_t requested);
void BeforeSampleFreed(const void* pointer, size_t usable);

}  // namespace heaptap::listener

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_LISTENER_H_
