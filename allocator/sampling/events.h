// SPDX-License-Identifier: Apache-2.0
//
// What happens when a sample is allocated or freed (core/observer.h, Allocated and Freed): the probes fire, samples are
// counted, and the listener is told.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_EVENTS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_EVENTS_H_

namespace heaptap {

// The calling thread, or each thread, is prepared for its next sample as if that were its first (listener.h).
void PrepareThreadAgain();
void PrepareAllThreadsAgain();

// The listener is called before the calling thread's next sample, though the thread is prepared.
void CallBeforeNextSample();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_EVENTS_H_
