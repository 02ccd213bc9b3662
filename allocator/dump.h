// SPDX-License-Identifier: Apache-2.0
//
// Dumps that the process asks the collector for (contract.h, struct heaptap_dump_request).
#ifndef HEAPTAP_ALLOCATOR_DUMP_H_
#define HEAPTAP_ALLOCATOR_DUMP_H_

#include "heaptap/contract.h"

namespace heaptap {

// Asks for a dump into the file `path` (a name of the process; an existing file is overwritten), or, if `path` is
// nullptr, into <prefix>.<pid>.<sequence>.<kind><number of the kind>.heap. Waits for it, with a bound; other dumps wait
// behind it. Any thread, no lock held. Returns 0 or an errno value, which has been told on stderr too:
//   EFAULT  there is no collector, it failed, the file could not be opened, or there is no prefix (not told)
//   EAGAIN  the collector did not answer in time
int Dump(heaptap_dump_kind kind, const char* path);

// The handler of prof_final: a dump, and with prof_leak a summary of what is still live.
void DumpAtExit();

// The child of a fork has no dump under way.
void ResetDumpsAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_DUMP_H_
