// SPDX-License-Identifier: Apache-2.0
//
// The events of a sample (core/observer.h, Allocated and Freed): the probes fire, the sample is counted, and the
// listener is called.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_EVENTS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_EVENTS_H_

namespace heaptap {

// The calling thread, or every thread, is prepared before its next sample, as it was before its first (listener.h).
void PrepareThreadAgain();
void PrepareAllThreadsAgain();

// The listener is called before the calling thread's next sample even if the thread is already prepared.
void CallBeforeNextSample();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_EVENTS_H_
