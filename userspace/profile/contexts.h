// SPDX-License-Identifier: Apache-2.0
//
// From tallies by stack to contexts.
#ifndef HEAPTAP_USERSPACE_PROFILE_CONTEXTS_H_
#define HEAPTAP_USERSPACE_PROFILE_CONTEXTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bpf/books.h"
#include "userspace/profile/profile.h"

namespace heaptap::profile {

// Collects tallies and makes one context of all that share their frames: stacks that differ only inside the allocator
// are one call path of the program. Thread-compatible.
class ContextBuilder {
 public:
  // Adds what a thread did on a call path: `frames` as Context has them.
  void Add(std::vector<uint64_t> frames, bool truncated, uint32_t tid, const heaptap_tally& tally);

  // The contexts, in the order in which their frames were first added. Leaves the builder empty.
  std::vector<Context> Build();

 private:
  std::vector<Context> contexts_;
  absl::flat_hash_map<std::vector<uint64_t>, size_t> by_frames_;  // index into contexts_
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_CONTEXTS_H_
