// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/contexts.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace heaptap::profile {
namespace {

// Sorts the shares by their keys, and adds those with equal keys.
template <typename Share, typename KeyOf, typename AddTo>
void Merge(std::vector<Share>& shares, KeyOf key_of, AddTo add_to) {
  if (shares.size() < 2) return;
  std::ranges::stable_sort(shares, {}, key_of);
  size_t last = 0;
  for (size_t i = 1; i < shares.size(); i++) {
    if (key_of(shares[i]) == key_of(shares[last])) {
      add_to(shares[last], shares[i]);
    } else {
      shares[++last] = shares[i];
    }
  }
  shares.resize(last + 1);
}

}  // namespace

Context& ContextBuilder::At(absl::Span<const uint64_t> frames, bool truncated) {
  size_t index = contexts_.size();
  if (const auto known = by_frames_.find(frames); known != by_frames_.end()) {
    index = known->second;
  } else {
    contexts_.push_back({.frames = {frames.begin(), frames.end()}});
    by_frames_.emplace(contexts_.back().frames, index);
  }
  contexts_[index].truncated |= truncated;
  return contexts_[index];
}

void ContextBuilder::Add(absl::Span<const uint64_t> frames, bool truncated, uint32_t tid, const heaptap_tally& tally) {
  At(frames, truncated)
      .threads.push_back({.tid = tid, .live = LiveEstimate(tally), .allocated = ToEstimate(tally.allocated)});
}

void ContextBuilder::Add(absl::Span<const uint64_t> frames, bool truncated, const BlockShare& blocks) {
  At(frames, truncated).blocks.push_back(blocks);
}

std::vector<Context> ContextBuilder::Build() {
  by_frames_.clear();
  for (Context& context : contexts_) {
    Merge(
        context.threads, [](const ThreadShare& share) { return share.tid; },
        [](ThreadShare& sum, const ThreadShare& share) {
          sum.live += share.live;
          sum.allocated += share.allocated;
        });
    Merge(
        context.blocks, [](const BlockShare& share) { return std::tuple(share.tid, share.size, share.age); },
        [](BlockShare& sum, const BlockShare& share) { sum.live += share.live; });
  }
  return std::exchange(contexts_, {});
}

}  // namespace heaptap::profile
