// SPDX-License-Identifier: Apache-2.0
//
// The live estimates in the form of gperftools' heap growth, for jeprof, google-pprof and `go tool pprof`:
//
//   %warn <warning>
//   heap profile: <objects>: <bytes> [<objects>: <bytes>] @ growthz
//   <objects>: <bytes> [<objects>: <bytes>] @ <address> <address> ...            for each context
//   <empty line>
//   MAPPED_LIBRARIES:
//   <executable mappings, in the form of /proc/PID/maps>
//
// Format: pprof of gperftools 2.10 (ReadHeapProfile) and Go's profile/legacy_profile.go. Readers show the numbers
// without a correction for sampling.
#ifndef HEAPTAP_USERSPACE_FORMATS_GROWTH_HEAP_H_
#define HEAPTAP_USERSPACE_FORMATS_GROWTH_HEAP_H_

#include <string>

#include "userspace/profile/profile.h"

namespace heaptap::formats {

// The profile in that format, without contexts that have no live bytes. Thread-safe.
std::string GrowthHeap(const profile::Profile& profile);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_GROWTH_HEAP_H_
