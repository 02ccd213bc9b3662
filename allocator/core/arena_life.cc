// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/arena_life.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include <atomic>
#include <new>

#include "allocator/core/borrow.h"
#include "allocator/core/control.h"
#include "allocator/core/heap_list.h"
#include "allocator/core/large.h"
#include "allocator/core/peek.h"
#include "allocator/core/sparse_slab.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/platform/system.h"

namespace heaptap {

namespace {

Arena* last_destroyed;  // linked by Arena::next_destroyed, under heaps_mutex

// REQUIRES: heaps_mutex is held. nullptr: out of memory, or all indices are in use.
Arena* MapArena() {
  HEAPTAP_ASSERT(heaps_mutex.IsMine());
  constexpr size_t kBytes = RoundUp(sizeof(Arena), kPageSize);
  const unsigned index = ArenaCount();
  if (index == kMostArenas) return nullptr;
  void* memory = MapAligned(kBytes, kPageSize);
  if (memory == nullptr) return nullptr;
  AddToFigure(&heaptap_statistics::mapped, kBytes);
  AddToFigure(&heaptap_statistics::metadata, kBytes);
  Arena* arena = new (memory) Arena{};
  arena->index = static_cast<ArenaIndex>(index);
  arena->heap.arena = arena->index;
  StartSharedHeap(arena->heap);
  AddArena(arena);
  return arena;
}

// Calls `act` for each heap of the arena except the shared one. The heap's thread may be using it. REQUIRES:
// heaps_mutex is held.
template <typename Act>
void ForEachHeapOf(const Arena& arena, Act act) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine());
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    if (heap->arena == arena.index) act(heap);
  }
}

// Whether a thread is bound to the arena. REQUIRES: as above.
bool IsAnyBound(const Arena& arena) {
  bool is_bound = false;
  ForEachHeapOf(arena, [&](const Heap* heap) { is_bound |= heap->state == HeapState::kOwned; });
  return is_bound;
}

// All heaps of the arena leave their slabs.
void LeaveSlabsOf(Arena& arena) {
  {
    HeapScope scope(arena);
    scope->LeaveSlabs();
  }
  if (current_heap->arena == arena.index) {
    HeapScope scope;
    scope->LeaveSlabs();
  }
  MutexLock lock(heaps_mutex);
  ForEachHeapOf(arena, [](Heap* heap) {
    // The child of a fork cannot know in what state such a heap is; no thread will use it.
    if (heap == current_heap || heap->state == HeapState::kAbandoned) return;
    // A thread that is bound to the arena may be in a slow path for a block of another arena. This slow path waits for
    // none of these locks, and the thread's next slow path waits for the borrower.
    BorrowedHeap borrowed(heap);
    while (heap->busy.load(std::memory_order_acquire) != 0) SystemCall(SYS_sched_yield);
    heap->LeaveSlabs();
  });
}

// Releases a slab or run whose blocks the program has given up.
void Release(Arena& arena, Slab* slab, uintptr_t owner, bool returns_memory) {
  if (owner == kRunOwner) return FreeRun(slab, returns_memory);
  if (owner == kSampledOwner && !observer::DiscardBlocks(arena, slab)) return;
  slab->used = slab->returned;
  slab->used_settled = slab->used;
  RenewSlab(slab);
  const bool is_clean = returns_memory && DiscardPages(SlabMemory(slab), size_t{1} << ChunkOf(slab)->shift);
  ReleaseUnits(slab, !is_clean);
}

// Releases all slabs and runs of the arena. Those of other arenas may come and go meanwhile.
void ReleaseUnitsOf(Arena& arena, bool returns_memory) {
  for (unsigned shift : {kShortShift, kLongShift}) {
    // Acquire: the next chunk's header is written.
    for (Chunk* chunk = FirstChunk(shift); chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire)) {
      Slab* units = reinterpret_cast<Slab*>(chunk);
      for (size_t unit = 1; unit < Peek(chunk->reach); unit++) {
        // Acquire: pairs with NewSlab.
        const uintptr_t owner = units[unit].owner.load(std::memory_order_acquire);
        if (owner != kNobody && Peek(units[unit].arena) == arena.index)
          Release(arena, units + unit, owner, returns_memory);
      }
    }
  }
}

void ReleaseHugeBlocksOf(const Arena& arena, bool returns_memory) {
  auto read = [](void* opaque, void* pointer) { *static_cast<ArenaIndex*>(opaque) = Peek(HugeOf(pointer)->arena); };
  ArenaIndex found = 0;
  for (uintptr_t address = 0; (address = VisitHuge(address, read, &found)) != 0; address += kChunkSize) {
    if (found == arena.index) FreeHuge(HugeOf(reinterpret_cast<void*>(address)), returns_memory);
  }
}

}  // namespace

Arena* MakeArena() {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  MutexLock lock(heaps_mutex);
  Arena* arena = last_destroyed;
  if (arena == nullptr) return MapArena();
  last_destroyed = arena->next_destroyed;
  arena->state.store(ArenaState::kUsed, std::memory_order_release);
  return arena;
}

bool DiscardBlocks(Arena& arena, bool returns_memory) {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  if (arena.index == 0) return false;
  {
    MutexLock lock(heaps_mutex);
    if (returns_memory && IsAnyBound(arena)) return false;
    ArenaState expected = ArenaState::kUsed;
    if (!arena.state.compare_exchange_strong(expected, ArenaState::kDiscarding, std::memory_order_relaxed))
      return false;
  }
  LeaveSlabsOf(arena);
  ReleaseUnitsOf(arena, returns_memory);
  ReleaseHugeBlocksOf(arena, returns_memory);
  if (!returns_memory) arena.state.store(ArenaState::kUsed, std::memory_order_release);
  return true;
}

void RetireArena(Arena& arena) {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  for (LargeCounts& counts : arena.large) {
    counts.allocations.store(0, std::memory_order_relaxed);
    counts.frees.store(0, std::memory_order_relaxed);
  }
  observer::ForgetCounts(&arena);
  {
    HeapScope scope(arena);
    scope->ForgetCounts();
  }
  MutexLock lock(heaps_mutex);
  ForEachHeapOf(arena, [](Heap* heap) {
    heap->ForgetCounts();
    heap->arena = 0;
  });
  arena.state.store(ArenaState::kDestroyed, std::memory_order_relaxed);
  arena.next_destroyed = last_destroyed;
  last_destroyed = &arena;
}

bool BindThread(Arena& arena) {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  TickSlowPath();
  Heap* old = current_heap;
  if (old == &empty_heap) return false;
  if (old->arena == arena.index) return true;
  Heap* heap = AdoptOrMakeHeap(arena);
  if (heap == nullptr) return false;
  {
    HeapScope scope;
    scope->Flush();
  }
  observer::MoveThread(old, heap);
  old->CountForNobody();
  SetHeapOfThread(heap);
  MutexLock lock(heaps_mutex);
  Park(old);
  return true;
}

}  // namespace heaptap
