// SPDX-License-Identifier: Apache-2.0
//
// The profile with the names of its addresses, which jeprof can read on any machine, without the program:
//
//   --- symbol
//   binary=<program>
//   0x<address> <outer function>--<inlined function>--...     for each address
//   ---
//   --- heap
//   <the profile in the form of HeapV2, without the mapped libraries>
//
// Format: bin/jeprof of jemalloc 5.3 (ReadSymbols, FetchSymbols, PrintSymbolizedProfile).
#ifndef HEAPTAP_USERSPACE_FORMATS_JEPROF_SYMBOLIZED_H_
#define HEAPTAP_USERSPACE_FORMATS_JEPROF_SYMBOLIZED_H_

#include <string>

#include "absl/strings/string_view.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::formats {

// The profile in that format. `program`: its path. Only the last part of the path is written, because jeprof complains
// about missing folders. Names come from FrameNames; "--" in a name, which jeprof takes for its end, becomes "- -".
// Thread-safe if `find` is.
std::string JeprofSymbolized(const profile::Profile& profile, absl::string_view program,
                             const profile::FindSourceFrames& find);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_JEPROF_SYMBOLIZED_H_
