// SPDX-License-Identifier: Apache-2.0
//
// Functions, inlined functions and lines from a file's debug information, by libdw.
//
// libdw trusts the file: a hostile file may make it crash, run forever or take all memory. So this is called only in
// processes without rights (userspace/worker/).
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_DWARF_FRAMES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_DWARF_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace heaptap::symbolize {

// Depth of inlined functions at one address; compilers stay far below. Deeper ones are left out.
inline constexpr size_t kMaxInlined = 256;

struct DwarfFrame {
  std::string function = {};     // may be empty
  bool is_linkage_name = false;  // `function` is the linker's name; else it is the source's (ScopeNames)
  std::string file = {};         // may be empty
  uint32_t line = 0;             // 0: unknown
};

// Innermost first; the last is the function that the others are inlined into.
using DwarfFramesFound = std::function<void(size_t index, const std::vector<DwarfFrame>& frames)>;

struct DwarfReading {
  bool was_read = false;  // the file has debug information that libdw can read
  // Some of the addresses lie in a unit whose functions are described in a separate file (-gsplit-dwarf). They have no
  // frames: the line of such an address may be one of an inlined function.
  bool is_split = false;
};

// Calls `found` for each of the link-time `addresses` that the file's debug information covers, in ascending order
// within each compilation unit. `shared_fd`: the file with shared debug information; negative: none. REQUIRES:
// addresses ascend.
DwarfReading FindDwarfFrames(int fd, int shared_fd, absl::Span<const uint64_t> addresses,
                             const DwarfFramesFound& found);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DWARF_FRAMES_H_
