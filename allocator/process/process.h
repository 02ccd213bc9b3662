// SPDX-License-Identifier: Apache-2.0
//
// The allocator in the life of its process: the first call, fork, the control block.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_PROCESS_H_
#define HEAPTAP_ALLOCATOR_PROCESS_PROCESS_H_

#include "allocator/process/configuration.h"

namespace heaptap {

// Reads the options, fills in the control block, fires heaptap:start. Once: later calls return at once. Called by
// the first allocation or the library's constructor, whichever comes first. Any thread, no lock held. errno is kept.
void StartProcess();

// What was asked for. REQUIRES: StartProcess has returned.
const Configuration& ProcessConfiguration();

// Whether any source of options says anything. Any thread, any time.
bool HasOptions();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_PROCESS_H_
