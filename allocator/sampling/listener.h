// SPDX-License-Identifier: Apache-2.0
//
// The functions by which sampling reports each sample to the layer above. profiling/listener.cc defines them.
//
// Called by the sampled thread, with no lock held and in no HeapScope. They keep errno.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_LISTENER_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_LISTENER_H_

#include <stddef.h>

namespace heaptap::listener {

// Called before the thread's first sample and before the next sample after PrepareThreadAgain (events.h), with
// `is_first` true; and before the next sample after CallBeforeNextSample, with `is_first` false.
void PrepareThread(bool is_first);

// After otel_memory:alloc of a sample; before otel_memory:free. `usable`: the usable size, bytes; `requested`: the size
// that the program requested.
void AfterSample(const void* pointer, size_t usable, size_t requested);
void BeforeSampleFreed(const void* pointer, size_t usable);

}  // namespace heaptap::listener

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_LISTENER_H_
