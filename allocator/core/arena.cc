// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/arena.h"

#include <stdint.h>

#include <atomic>

#include "allocator/platform/mutex.h"

namespace heaptap {

constinit Arena main_arena{};
constinit std::atomic<Arena*> explicit_arenas[kMostArenas]{};

namespace {

constinit std::atomic<unsigned> explicit_count;

}  // namespace

unsigned ArenaCount() {
  // Acquire: the arenas are complete.
  return 1 + explicit_count.load(std::memory_order_acquire);
}

void AddArena(Arena* arena) {
  HEAPTAP_ASSERT(Mutex::Holds(LockRank::kHeaps) && arena->index == ArenaCount());
  // Release: a thread that finds the arena finds it complete.
  explicit_arenas[arena->index].store(arena, std::memory_order_release);
  explicit_count.store(arena->index, std::memory_order_release);
}

Arena* FindArena(uint64_t index) {
  if (index >= ArenaCount()) return nullptr;
  Arena& arena = ArenaOf(static_cast<ArenaIndex>(index));
  return arena.state.load(std::memory_order_acquire) == ArenaState::kDestroyed ? nullptr : &arena;
}

}  // namespace heaptap
