// SPDX-License-Identifier: Apache-2.0
//
// The start of the allocator in a process, fork, and the control block.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_PROCESS_H_
#define HEAPTAP_ALLOCATOR_PROCESS_PROCESS_H_

#include "allocator/process/configuration.h"

extern "C" {
// The bounds of the allocator's code, from text.ld. Weak: tests that link the objects directly do not define them.
extern const char heaptap_text_begin[] __attribute__((weak, visibility("hidden")));
extern const char heaptap_text_end[] __attribute__((weak, visibility("hidden")));
}

namespace heaptap {

// Reads the options, fills in the control block, fires heaptap:start. Later calls return at once. Called by the first
// allocation or the library's constructor, whichever comes first. Any thread, no lock held. errno is kept.
void StartProcess();

// The work of the library's constructor: StartProcess, so that a process that never allocates has a control block too;
// and the start of the thread of background_thread:true, because libc is ready for threads by then.
void StartLibrary();

// The configuration that the options have set. REQUIRES: StartProcess has returned, or has called
// lifecycle::Begin.
const Configuration& ProcessConfiguration();

// Whether any source of options exists. Any thread, any time.
bool HasOptions();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_PROCESS_H_
