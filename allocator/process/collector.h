// SPDX-License-Identifier: Apache-2.0
//
// Who records this process, as far as it can tell: by the semaphore of heaptap:dump and by the control block. Any
// thread, any time, no lock.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_COLLECTOR_H_
#define HEAPTAP_ALLOCATOR_PROCESS_COLLECTOR_H_

namespace heaptap {

// Whether somebody listens to requests. The probes of a daemon's recording stay when the daemon ends.
bool HasCollector();

// Whether that collector has ended. False, too, where the process cannot know: outside the first PID name space.
bool HasCollectorEnded();

// The child of a fork that is not recorded with its parent: only a control block that names a collector tells of one.
void DistrustSemaphores();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_COLLECTOR_H_
