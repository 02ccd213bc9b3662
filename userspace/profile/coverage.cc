// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/coverage.h"

#include <algorithm>

#include "userspace/profile/estimate.h"

namespace heaptap::profile {

std::vector<CoveragePart> Cover(const ResidentBytes& resident, const heaptap_statistics* statistics, double live) {
  uint64_t left = resident.anonymous;
  const auto take = [&left](uint64_t bytes) {
    const uint64_t taken = std::min(bytes, left);
    left -= taken;
    return taken;
  };
  const uint64_t live_bytes = ToWhole(live);
  const bool is_known = statistics != nullptr;
  const heaptap_statistics known = statistics == nullptr ? heaptap_statistics{} : *statistics;
  const uint64_t stacks = take(resident.stacks);
  const uint64_t metadata = take(known.metadata);
  const uint64_t cached = take(known.dirty);
  const uint64_t used = take(live_bytes);
  const uint64_t fragmentation = take(known.active > live_bytes ? known.active - live_bytes : 0);
  std::vector<CoveragePart> parts = {
      {kLivePart, used, "blocks that the program holds, as far as they are resident: an estimate from the samples"}};
  if (is_known) {
    parts.push_back({"cached", cached, "free pages that the allocator keeps for later"});
    parts.push_back({"fragmentation", fragmentation,
                     "free blocks in pages that are in use; also what was allocated before the recording began, and "
                     "the error of the estimate"});
    parts.push_back({"allocator metadata", metadata, "what the allocator needs for itself"});
  }
  parts.push_back({"stacks", stacks, "stacks of the threads"});
  parts.push_back({"files", resident.files, "programs, libraries and other mapped files"});
  parts.push_back({"other mappings", left + resident.shared,
                   is_known ? "shared memory, and memory that the program has mapped without the allocator"
                            : "shared memory, memory that the program has mapped without the allocator, and what the "
                              "allocator keeps besides live blocks: it does not say how much that is"});
  return parts;
}

double SumOf(const std::vector<CoveragePart>& parts) {
  double sum = 0;
  for (const CoveragePart& part : parts) sum += static_cast<double>(part.bytes);
  return sum;
}

}  // namespace heaptap::profile
