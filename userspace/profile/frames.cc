// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/frames.h"

#include <algorithm>

namespace heaptap::profile {

std::vector<uint64_t> CutAllocatorFrames(absl::Span<const uint64_t> frames, absl::Span<const AddressRange> allocator) {
  if (frames.empty()) return {};
  auto returns_to_allocator = [allocator](uint64_t frame) {
    // The byte before a return address belongs to the call. After a call that never returns, the address itself may
    // belong to the next function.
    uint64_t call = frame - 1;
    return std::any_of(allocator.begin(), allocator.end(),
                       [call](const AddressRange& range) { return range.begin <= call && call < range.end; });
  };
  auto first = std::find_if_not(frames.begin() + 1, frames.end(), returns_to_allocator);
  return std::vector<uint64_t>(first, frames.end());
}

}  // namespace heaptap::profile
