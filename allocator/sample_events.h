// SPDX-License-Identifier: Apache-2.0
//
// What is to be done when a sampled block is allocated or freed: the probes fire, and whatever else the process has
// asked for happens: hooks, counts, intervals.
//
// For the thread concerned, with no lock held and in no HeapScope. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_EVENTS_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_EVENTS_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// The block is whole and usable. `usable`: its size, bytes. `weight`: what it stands for. `requested`: what the program
// asked for.
void SampleAllocated(const void* pointer, size_t usable, uint64_t weight, size_t requested);

// The block is about to be freed; nobody can get it yet. `requested`: as it was allocated.
void SampleFreed(const void* pointer, size_t usable, size_t requested);

// Before the calling thread's next sample, tells the collector again what it may not know yet (profiling.h): samples
// were off.
void IntroduceThreadAgain();
void IntroduceAllThreadsAgain();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_EVENTS_H_
