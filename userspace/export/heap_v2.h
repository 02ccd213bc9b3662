// SPDX-License-Identifier: Apache-2.0
//
// The profile as jemalloc writes it: threaded heap_v2 text, for jeprof and what else reads that.
//
//   %warn <warning>                                      for each warning
//   heap_v2/<period>
//     t*: <objects>: <bytes> [<objects>: <bytes>]        live [allocated since recording began], of all threads
//     t<tid>: <...>: <...> [<...>: <...>][ <name>]       for each thread, by tid
//   @ <address> <address> ...                            for each context, innermost frame first
//     t*: <...>
//     t<tid>: <...>
//   <empty line>
//   MAPPED_LIBRARIES:
//   <executable mappings, in the form of /proc/PID/maps>
//
// Format: jemalloc's src/prof_data.c and bin/jeprof (ReadThreadedHeapProfile), as of 5.3.
#ifndef HEAPTAP_USERSPACE_EXPORT_HEAP_V2_H_
#define HEAPTAP_USERSPACE_EXPORT_HEAP_V2_H_

#include <cstdint>
#include <string>

#include "userspace/profile/profile.h"

namespace heaptap::exporter {

// The profile in that format. Counts are such that jeprof, which corrects each line for sampling by the line's mean
// size, shows the profile's estimates. Contexts that hold nothing and never did are left out; the others come by live
// bytes, the largest first. Bytes of names and paths that would break a line or a terminal are escaped. Takes time
// linear in the size of the profile, but for sorting the contexts. Thread-safe.
std::string HeapV2(const profile::Profile& profile);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_HEAP_V2_H_
