// SPDX-License-Identifier: Apache-2.0
//
// The profile with the names of its addresses, which jeprof reads without the program, on any machine:
//
//   --- symbol
//   binary=<program>
//   0x<address> <outer function>--<inlined function>--...     for each address
//   ---
//   --- heap
//   <the profile, as HeapV2 writes it, but without the mapped libraries>
//
// Format: bin/jeprof of jemalloc 5.3 (ReadSymbols, FetchSymbols, PrintSymbolizedProfile).
#ifndef HEAPTAP_USERSPACE_EXPORT_JEPROF_SYMBOLIZED_H_
#define HEAPTAP_USERSPACE_EXPORT_JEPROF_SYMBOLIZED_H_

#include <string>

#include "absl/strings/string_view.h"
#include "userspace/export/source_frames.h"
#include "userspace/profile/profile.h"

namespace heaptap::exporter {

// The profile in that format. `program`: its path, of which the last part is shown; jeprof complains of folders that it
// does not find. Names are FrameNames'; "--" within one, which jeprof takes for the end of it, becomes "- -".
// Thread-safe if `find` is.
std::string JeprofSymbolized(const profile::Profile& profile, absl::string_view program, const FindSourceFrames& find);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_JEPROF_SYMBOLIZED_H_
