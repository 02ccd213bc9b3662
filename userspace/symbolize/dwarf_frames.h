// SPDX-License-Identifier: Apache-2.0
//
// Functions, inlined functions and lines from a file's debug information, by libdw.
//
// libdw trusts the file: on a hostile one it may crash, run for ever or take all memory. To be called in a confined
// process only (userspace/symbolize/confined.h).
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_DWARF_FRAMES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_DWARF_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace heaptap::symbolize {

// Functions that are inlined into each other at one address; compilers stop far below. More are left out.
inline constexpr size_t kMaxInlined = 256;

struct DwarfFrame {
  std::string function = {};     // may be empty
  bool is_linkage_name = false;  // `function` is the linker's name, else the source's, without its scope
  std::string file = {};         // may be empty
  uint32_t line = 0;             // 0: unknown
};

// The innermost first; the last is the function itself.
using DwarfFramesFound = std::function<void(size_t index, const std::vector<DwarfFrame>& frames)>;

// Calls `found` for each of the link-time `addresses`, which ascend, that the file's debug information covers, in
// ascending order within each compilation unit. `shared_fd`: the file that it shares pieces with; negative: none.
void FindDwarfFrames(int fd, int shared_fd, absl::Span<const uint64_t> addresses, const DwarfFramesFound& found);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DWARF_FRAMES_H_
