// SPDX-License-Identifier: Apache-2.0
//
// Whether a collector records this process, judged by the semaphore of heaptap:dump and the control block. Any thread,
// any time.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_COLLECTOR_H_
#define HEAPTAP_ALLOCATOR_PROCESS_COLLECTOR_H_

namespace heaptap {

// Whether a collector listens to requests. True, too, after a daemon has ended, since its probes stay attached.
bool HasCollector();

// Whether that collector has ended, or no longer records this process. Outside the initial PID namespace a process
// cannot know that a collector was killed; then this is false.
bool HasCollectorEnded();

// For the child of a fork that is not recorded with its parent: from now on only a collector in the control block
// counts, since the child has inherited its parent's semaphores.
void DistrustSemaphores();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_COLLECTOR_H_
