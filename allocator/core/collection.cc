// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/collection.h"

#include <stdint.h>

#include <atomic>

#include "allocator/core/huge_cache.h"
#include "allocator/core/thread.h"

namespace heaptap {
namespace {

constexpr uint32_t kMostSkips = 1023;

// Threads that fail at the same time may miscount, which adds or saves a few collections.
constinit std::atomic<uint32_t> pause;  // failures between a collection that has not helped and the next collection
constinit std::atomic<uint32_t> left;   // how many failures of this pause are still to come

}  // namespace

bool CollectMemory() {
  const uint32_t skips = left.load(std::memory_order_relaxed);
  if (skips != 0) {
    left.store(skips - 1, std::memory_order_relaxed);
    return false;
  }
  ScavengeHeaps();
  PurgeHuge(0);
  return true;
}

void NoteCollection(bool has_helped) {
  const uint32_t before = pause.load(std::memory_order_relaxed);
  const uint32_t next = has_helped ? 0 : before < kMostSkips ? 2 * before + 1 : kMostSkips;
  pause.store(next, std::memory_order_relaxed);
  left.store(next, std::memory_order_relaxed);
}

}  // namespace heaptap
