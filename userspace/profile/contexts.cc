// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/contexts.h"

#include <algorithm>
#include <utility>

namespace heaptap::profile {

void ContextBuilder::Add(std::vector<uint64_t> frames, bool truncated, uint32_t tid, const heaptap_tally& tally) {
  auto [entry, is_new] = by_frames_.try_emplace(std::move(frames), contexts_.size());
  if (is_new) contexts_.push_back({.frames = entry->first, .truncated = false, .threads = {}});
  Context& context = contexts_[entry->second];
  context.truncated |= truncated;
  context.threads.push_back({.tid = tid, .live = LiveEstimate(tally), .allocated = ToEstimate(tally.allocated)});
}

std::vector<Context> ContextBuilder::Build() {
  by_frames_.clear();
  for (Context& context : contexts_) {
    std::vector<ThreadShare>& threads = context.threads;
    std::stable_sort(threads.begin(), threads.end(),
                     [](const ThreadShare& a, const ThreadShare& b) { return a.tid < b.tid; });
    size_t last = 0;
    for (size_t i = 1; i < threads.size(); ++i) {
      if (threads[i].tid == threads[last].tid) {
        threads[last].live += threads[i].live;
        threads[last].allocated += threads[i].allocated;
      } else {
        threads[++last] = threads[i];
      }
    }
    threads.resize(last + 1);
  }
  return std::exchange(contexts_, {});
}

}  // namespace heaptap::profile
