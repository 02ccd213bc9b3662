// SPDX-License-Identifier: Apache-2.0
//
// How the writers ask for names: they know addresses only, and somebody above them knows the program's symbols.
#ifndef HEAPTAP_USERSPACE_EXPORT_SOURCE_FRAMES_H_
#define HEAPTAP_USERSPACE_EXPORT_SOURCE_FRAMES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heaptap::exporter {

// A function at an address, or one that the compiler made part of it. The program's file chose the texts, so any byte
// may be in them.
struct SourceFrame {
  std::string function = {};      // as people read it; "": not known
  std::string linkage_name = {};  // as the linker knows it; "": not known, or the same
  std::string file = {};          // "": not known
  uint32_t line = 0;              // of the call in this function; 0: not known
};

// Finds the frames at an address that lies in a call, not after it (CallAddress): innermost first, the function that
// has code of its own last. Nothing if no symbol is there. Writers ask once for each address. May be empty: no names.
using FindSourceFrames = std::function<std::vector<SourceFrame>(uint64_t address)>;

// The last byte of the call that returns to `frame`: a call that never returns may be the last of its function, and
// what it would return to is the next function's.
inline uint64_t CallAddress(uint64_t frame) { return frame > 0 ? frame - 1 : 0; }

// What stands in the place of a call path that is not known.
inline constexpr char kUnknownCallPath[] = "[unknown call path]";

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_SOURCE_FRAMES_H_
