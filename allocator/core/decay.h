// SPDX-License-Identifier: Apache-2.0
//
// How much free memory stays with the process, and for how long. Any thread.
#ifndef HEAPTAP_ALLOCATOR_CORE_DECAY_H_
#define HEAPTAP_ALLOCATOR_CORE_DECAY_H_

#include <stddef.h>
#include <sys/types.h>

namespace heaptap {

// How long free memory stays dirty before it goes back to the system, in milliseconds: 0 returns it at once, -1 never.
// A change takes effect when a heap next reads the clock.
ssize_t DirtyDecay();
// REQUIRES: milliseconds >= -1.
void SetDirtyDecay(ssize_t milliseconds);

// While more bytes than this are dirty, freed memory goes back to the system, however recently it was freed: a process
// that frees much at once may be idle from then on. With dirty_decay_ms:-1 there is no bound.
size_t DirtyBound();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_DECAY_H_
