// SPDX-License-Identifier: Apache-2.0
//
// Which frames of a recorded stack are the program's.
#ifndef HEAPTAP_USERSPACE_PROFILE_FRAMES_H_
#define HEAPTAP_USERSPACE_PROFILE_FRAMES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace heaptap::profile {

// Addresses from `begin` up to, not including, `end`.
struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The frames of a stack that heaptap_stack holds, without the allocator's. Frame 0, the probe, always goes; then every
// frame that returns into one of the allocator's ranges, up to the first that does not. Frames further out stay even
// if they are the allocator's: there the allocator called back. May leave nothing. Thread-safe.
std::vector<uint64_t> CutAllocatorFrames(absl::Span<const uint64_t> frames, absl::Span<const AddressRange> allocator);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_FRAMES_H_
