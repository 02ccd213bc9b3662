// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/check.h"
#include "allocator/core/heap.h"
#include "allocator/core/options.h"
#include "allocator/core/units.h"
#include "allocator/platform/mutex.h"

#ifdef HEAPTAP_DEBUG
namespace heaptap {
namespace {

// The slow paths until the thread's next check.
constinit thread_local uint64_t slow_paths_left = kCheckInterval;

uintptr_t OwnerWordOf(const Heap* heap) { return reinterpret_cast<uintptr_t>(heap) | core_options.owner_bits; }

// Checks that a slab that the heap points to is on the queue, all of whose slabs have been checked.
void CheckIsQueued(const char* statement, const Heap* heap, unsigned size_class, const Slab* wanted) {
  const Slab* slab = heap->classes[size_class].queue.first();
  while (slab != nullptr && slab != wanted) slab = slab->next;
  CheckThat(statement, heap, slab == wanted);
}

// REQUIRES: the queue was checked. CheckSlab has checked the ready blocks, and that all blocks of a list are in one
// slab.
void CheckReady(const Heap* heap, unsigned c) {
  const Block* list = heap->ready[c];
  const BlockList& rest = heap->classes[c].rest;
  const char* fresh = heap->fresh[c];
  const bool has_fresh = fresh != heap->fresh_end[c];
  CheckThat("blocks on the ready list => no fresh block", heap, list == nullptr || !has_fresh);
  CheckThat("blocks in a rest => no fresh block", heap, rest.first == nullptr || !has_fresh);
  CheckAtMost("fresh <= fresh_end", heap, reinterpret_cast<uintptr_t>(fresh),
              reinterpret_cast<uintptr_t>(heap->fresh_end[c]));
  const void* const some[] = {list, rest.first, has_fresh ? fresh : nullptr};
  for (const void* block : some) {
    if (block == nullptr) continue;
    CheckIsQueued("the slab of the ready blocks is on the queue", heap, c, SlabOfBlock(block));
  }
  CheckEqual("|rest| == its length", heap, Length(rest.first), rest.length);
  const uint64_t ready = Length(list) + rest.length + static_cast<size_t>(heap->fresh_end[c] - fresh) / kClassSize[c];
  CheckAtMost("ready <= batch", heap, ready, heap->classes[c].batch);
  const ClassCounts& counts = heap->classes[c].counts;
  CheckAtMost("ready + taken_back <= handed_out", heap, ready + counts.taken_back.Read(), counts.handed_out.Read());
  CheckLess("1 <= countdown <= kNever: allowance < kNever", heap, heap->countdown().Allowance(c), Countdown::kNever);
}

void CheckEmpty(const Heap* heap, unsigned c) {
  const Slab* empty = heap->classes[c].empty;
  if (empty == nullptr) return;
  CheckIsQueued("the empty slab of the class is on the queue", heap, c, empty);
  CheckEqual("of the empty slab: used == 0", empty, empty->used, 0);
}

void CheckWakes(const Heap* heap, const Slab* slab) {
  const Slab* behind = slab;
  for (size_t count = 1; slab != nullptr; count++) {
    CheckThat("a slab on the list of wakes is one", slab, IsUnit(slab));
    const uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
    CheckEqual("a slab on the list of wakes is the heap's: owner == heap", slab, owner & ~kFullBit, OwnerWordOf(heap));
    CheckThat("a wake on its way => full or wake_pending", slab, (owner & kFullBit) != 0 || slab->wake_pending);
    slab = slab->wake_next;
    // `behind` moves half as fast, so in a cycle the two pointers meet.
    if (count % 2 == 0) behind = behind->wake_next;
    CheckThat("a slab is on the list of wakes once", heap, slab == nullptr || slab != behind);
  }
}

}  // namespace

Checked CheckHeap(const Heap* heap) {
  HEAPTAP_ASSERT(heap == current_heap || heap->busy.load(std::memory_order_relaxed) != 0 ||
                 Mutex::Holds(LockRank::kHeaps) || IsOnlyThread());
  Checked checked{};
  for (unsigned c = 0; c < kSmallClasses; c++) {
    CheckQueue(heap->classes[c].queue, c, OwnerWordOf(heap), &checked);
    CheckReady(heap, c);
    CheckEmpty(heap, c);
  }
  // Acquire: the links of the list.
  CheckWakes(heap, heap->wakes.load(std::memory_order_acquire));
  CheckWakes(heap, heap->taken_wakes);
  return checked;
}

size_t CheckHeapAndUnits(const Heap* heap) {
  HEAPTAP_ASSERT(IsShared(*heap) || !Mutex::HoldsAny());
  const Checked checked = CheckHeap(heap);
  UnitSums sums{};
  sums.owner = OwnerWordOf(heap);
  if (CheckUnits(&sums)) {
    CheckEqual("queued slabs == slabs of the heap that are not full", heap, checked.slabs, sums.owned);
  }
  return checked.blocks + checked.slabs + sums.looked_at;
}

void CheckSlowPath(const Heap* heap) {
  HEAPTAP_ASSERT(IsShared(*heap) || !Mutex::HoldsAny());
  if (!core_options.debug_check && --slow_paths_left != 0) return;
  const size_t looked_at = CheckHeapAndUnits(heap);
  slow_paths_left = kCheckInterval + looked_at / kCheckedPerSlowPath;
}

}  // namespace heaptap
#endif
