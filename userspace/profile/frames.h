// SPDX-License-Identifier: Apache-2.0
//
// The frames of a recorded stack without the allocator's.
#ifndef HEAPTAP_USERSPACE_PROFILE_FRAMES_H_
#define HEAPTAP_USERSPACE_PROFILE_FRAMES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace heaptap::profile {

// Addresses from `begin` to before `end`.
struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// The frames of a stack without the innermost ones that belong to the allocator: frame 0, the probe, and the frames
// after it that return into one of the allocator's ranges. Frames of the allocator further out stay, because there it
// called the program. The result may be empty. Thread-safe.
std::vector<uint64_t> CutAllocatorFrames(absl::Span<const uint64_t> frames, absl::Span<const AddressRange> allocator);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_FRAMES_H_
