// SPDX-License-Identifier: Apache-2.0
//
// How writers ask for names: they know only addresses, and a caller knows the symbols of the program.
#ifndef HEAPTAP_USERSPACE_PROFILE_SOURCE_FRAMES_H_
#define HEAPTAP_USERSPACE_PROFILE_SOURCE_FRAMES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bpf/books.h"

namespace heaptap::profile {

// A function at an address, or a function that is inlined there. The texts come from the program's file and may have
// any bytes.
struct SourceFrame {
  std::string function = {};      // for people; "": unknown
  std::string linkage_name = {};  // the linker's name; "": unknown, or the same
  std::string file = {};          // "": unknown
  uint32_t line = 0;              // of the call in this function; 0: unknown
};

// Finds the frames at an address inside a call (CallAddress), innermost first; the last one is not inlined. Returns
// nothing if the address has no symbol. Writers ask once for each address. An empty function: no names.
using FindSourceFrames = std::function<std::vector<SourceFrame>(uint64_t address)>;

// The address of the last byte of the call that returns to `frame`. The return address itself may belong to the next
// function, if the call never returns and ends its function.
inline uint64_t CallAddress(uint64_t frame) { return frame > 0 ? frame - 1 : 0; }

// The name of HEAPTAP_FRAMES_LEFT_OUT, which stands between the inner and the outer frames of a deep stack.
inline constexpr char kFramesLeftOut[] = "[frames left out]";

// The outermost name of a call path whose outer frames are missing (Context::truncated), in formats that show
// the outermost frame as a root.
inline constexpr char kOuterFramesMissing[] = "[outer frames missing]";

// What `find` finds, or kFramesLeftOut.
inline std::vector<SourceFrame> FramesAt(const FindSourceFrames& find, uint64_t address) {
  if (address == CallAddress(HEAPTAP_FRAMES_LEFT_OUT)) return {{.function = kFramesLeftOut}};
  return find ? find(address) : std::vector<SourceFrame>();
}

// The name of an unknown call path.
inline constexpr char kUnknownCallPath[] = "[unknown call path]";

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_SOURCE_FRAMES_H_
