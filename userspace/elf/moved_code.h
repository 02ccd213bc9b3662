// SPDX-License-Identifier: Apache-2.0
//
// Code that a process has moved to anonymous memory at its own address, to have it in huge pages (node
// --use-largepages=on). The kernel shows no file there, but the mappings before and after it are still of the file.
// Thread-safe.
#ifndef HEAPTAP_USERSPACE_ELF_MOVED_CODE_H_
#define HEAPTAP_USERSPACE_ELF_MOVED_CODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/elf/mappings.h"

namespace heaptap::elf {

struct MovedCode {
  // The file's code may be here; it has not been compared with the file.
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
  Mapping neighbour = {};  // a whole mapping of the file
  // Where its line is in the text, and the line that it would have as a mapping of the file.
  size_t line_begin = 0;
  size_t line_bytes = 0;
  std::string line = {};
};

// Finds executable mappings without a file between two mappings of one file whose offsets leave this room for them.
// They are in the order of `maps`, a text in the form of /proc/PID/maps; at most `most`.
std::vector<MovedCode> FindMovedCode(absl::string_view maps, size_t most);

// The text `maps` with the lines of `moved` in place of the original ones. REQUIRES: `moved` is in the order of
// FindMovedCode.
std::string WithMovedCode(absl::string_view maps, const std::vector<MovedCode>& moved);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_MOVED_CODE_H_
