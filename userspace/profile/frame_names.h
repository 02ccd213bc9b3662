// SPDX-License-Identifier: Apache-2.0
//
// Names of frames for textual formats.
#ifndef HEAPTAP_USERSPACE_PROFILE_FRAME_NAMES_H_
#define HEAPTAP_USERSPACE_PROFILE_FRAME_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::profile {

// The mapping of `address`, or null. REQUIRES: `mappings` is sorted by address, as in Profile. Thread-safe.
const elf::Mapping* FindMapping(absl::Span<const elf::Mapping> mappings, uint64_t address);

// The last part of a path; the whole path if that part is empty or the only one ("[vdso]"). Thread-safe.
absl::string_view FileName(absl::string_view path);

// "libc.so.6+0x2724a", or "0x2724a" without a file: a place inside a call (CallAddress) that has no name. Thread-safe.
std::string PlaceText(absl::string_view library, uint64_t offset);

// The name of an address without a symbol: "<name of the file>+0x<offset in the file>", which is the same in every run
// of the program and printable, or "0x<address>" outside a file. `mapping`: the mapping of the address, or null.
// Thread-safe.
std::string NameWithoutSymbol(const elf::Mapping* mapping, uint64_t address);

// The names of the frames of one profile. Keeps references to its arguments. Thread-compatible.
class FrameNames {
 public:
  FrameNames(const Profile& profile, const FindSourceFrames& find) : profile_(profile), find_(find) {}

  // The names at an address (CallAddress), innermost first: at least one, printable, none empty. Without a symbol:
  // NameWithoutSymbol. Valid until the next call.
  const std::vector<std::string>& At(uint64_t address);

 private:
  const Profile& profile_;
  const FindSourceFrames& find_;
  absl::flat_hash_map<uint64_t, std::vector<std::string>> by_address_;
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_FRAME_NAMES_H_
