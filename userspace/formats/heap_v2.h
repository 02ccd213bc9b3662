// SPDX-License-Identifier: Apache-2.0
//
// The profile in the form of jemalloc: threaded heap_v2 text, for jeprof and other readers of it.
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
//   # time <RFC 3339>                                    when the profile was taken
//   # cut <number>                                       of a context, from 1: its outer frames are missing
//   # build-id <start> <hexadecimal digits>              before the mapping that begins there, if its file has one
//   <executable mappings, in the form of /proc/PID/maps>
//
// Format: jemalloc's src/prof_data.c and bin/jeprof (ReadThreadedHeapProfile), as of 5.3.
#ifndef HEAPTAP_USERSPACE_FORMATS_HEAP_V2_H_
#define HEAPTAP_USERSPACE_FORMATS_HEAP_V2_H_

#include <cstdint>
#include <string>

#include "userspace/profile/profile.h"

namespace heaptap::formats {

// The profile in that format. jeprof corrects each line for sampling by the mean size of the line; the counts are
// chosen so that it shows the profile's estimates. Contexts without allocations are left out; the others are sorted by
// live bytes, the largest first. Control characters in names and paths are escaped. Takes linear time, except for
// sorting. Thread-safe.
std::string HeapV2(const profile::Profile& profile);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_HEAP_V2_H_
