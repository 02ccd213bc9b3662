// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/profile.h"

#include <algorithm>

namespace heaptap::profile {

Estimate Context::Live() const {
  Estimate sum;
  for (const ThreadShare& share : threads) sum += share.live;
  return sum;
}

Estimate Context::Allocated() const {
  Estimate sum;
  for (const ThreadShare& share : threads) sum += share.allocated;
  return sum;
}

Estimate Profile::Live() const {
  Estimate sum;
  for (const Context& context : contexts) sum += context.Live();
  return sum;
}

Estimate Profile::Allocated() const {
  Estimate sum;
  for (const Context& context : contexts) sum += context.Allocated();
  return sum;
}

std::vector<ThreadShare> Profile::Threads() const {
  std::map<uint32_t, ThreadShare> by_tid;
  for (const Context& context : contexts) {
    for (const ThreadShare& share : context.threads) {
      ThreadShare& sum = by_tid[share.tid];
      sum.tid = share.tid;
      sum.live += share.live;
      sum.allocated += share.allocated;
    }
  }
  std::vector<ThreadShare> threads;
  threads.reserve(by_tid.size());
  for (const auto& [tid, sum] : by_tid) threads.push_back(sum);
  return threads;
}

bool Profile::HasBlocks() const {
  return std::ranges::any_of(contexts, [](const Context& context) { return !context.blocks.empty(); });
}

LeakSummary Profile::Leaks() const {
  Estimate live;
  LeakSummary leaks;
  for (const Context& context : contexts) {
    Estimate here = context.Live();
    if (here.IsZero()) continue;
    ++leaks.contexts;
    live += here;
  }
  leaks.bytes = ToWhole(live.bytes);
  leaks.objects = ToWhole(live.objects);
  return leaks;
}

}  // namespace heaptap::profile
