// SPDX-License-Identifier: Apache-2.0
//
// Groups tallies by stack into contexts.
#ifndef HEAPTAP_USERSPACE_PROFILE_CONTEXTS_H_
#define HEAPTAP_USERSPACE_PROFILE_CONTEXTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "bpf/books.h"
#include "userspace/profile/profile.h"

namespace heaptap::profile {

// Makes one context of all tallies with the same frames: stacks that differ only inside the allocator are one call path
// of the program. Thread-compatible.
class ContextBuilder {
 public:
  ContextBuilder() = default;
  // With room for this many contexts.
  explicit ContextBuilder(size_t expected) {
    contexts_.reserve(expected);
    by_frames_.reserve(expected);
  }
  ContextBuilder(const ContextBuilder&) = delete;
  ContextBuilder& operator=(const ContextBuilder&) = delete;

  // Adds the share of a thread in a call path; `frames` as in Context.
  void Add(absl::Span<const uint64_t> frames, bool truncated, uint32_t tid, const heaptap_tally& tally);

  // Adds live blocks of a thread in a call path.
  void Add(absl::Span<const uint64_t> frames, bool truncated, const BlockShare& blocks);

  // The contexts, in the order in which their frames were first added. The builder is empty afterwards.
  std::vector<Context> Build();

 private:
  Context& At(absl::Span<const uint64_t> frames, bool truncated);

  std::vector<Context> contexts_;
  // Index into contexts_. The keys are the frames there: they stay where they are when a context moves.
  absl::flat_hash_map<absl::Span<const uint64_t>, size_t> by_frames_;
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_CONTEXTS_H_
