// SPDX-License-Identifier: Apache-2.0
//
// The profile in the form of gperftools, for google-pprof and `go tool pprof`, which cannot read jemalloc's threaded
// form (google-pprof 2.10 takes it for a broken CPU profile). jeprof reads both.
//
//   %warn <warning>
//   heap profile: <objects>: <bytes> [<objects>: <bytes>] @ heap_v2/<period>     live [allocated]
//   <objects>: <bytes> [<objects>: <bytes>] @ <address> <address> ...            for each context
//   <empty line>
//   MAPPED_LIBRARIES:
//   <executable mappings, in the form of /proc/PID/maps>
//
// Format: gperftools' docs/heapprofile.html and pprof (ReadHeapProfile), as of 2.10. It has no threads.
#ifndef HEAPTAP_USERSPACE_FORMATS_GPERFTOOLS_HEAP_H_
#define HEAPTAP_USERSPACE_FORMATS_GPERFTOOLS_HEAP_H_

#include <string>

#include "userspace/profile/profile.h"

namespace heaptap::formats {

// The profile in that format. Readers correct each line for sampling; the counts are chosen so that readers show the
// estimates. Thread-safe.
std::string GperftoolsHeap(const profile::Profile& profile);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_GPERFTOOLS_HEAP_H_
