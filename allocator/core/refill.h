// SPDX-License-Identifier: Apache-2.0
//
// The slow path of malloc within a heap, Heap::Take, which is inlined into each slow path of allocate.cc: a call would
// cost as much as a tenth of it. What is rare is in refill.cc.
#ifndef HEAPTAP_ALLOCATOR_CORE_REFILL_H_
#define HEAPTAP_ALLOCATOR_CORE_REFILL_H_

#include <stdint.h>

#include "allocator/core/heap.h"
#include "allocator/core/invalid_free.h"
#include "allocator/core/observer.h"
#include "allocator/core/options.h"

namespace heaptap {

// A recycled batch of fewer blocks is poor: it hardly repays the slow path. The limit is a small share of the slab:
// for batches of n blocks, the slabs of a class must have n free blocks each on average.
inline constexpr uint32_t kPoorShare = 16;
inline constexpr uint32_t kPoorBlocks = 16;
// After this many poor batches, less the good ones, the class gets another slab.
inline constexpr uint8_t kPoorBatches = 16;

// Takes at most `limit` blocks off local_free.
inline Block* TakeLocal(Slab* slab, uint64_t limit) {
  Block* first = slab->local_free;
  uint32_t count = slab->carved - slab->used;
  slab->fresh = false;
  if (HEAPTAP_UNLIKELY(IsShortCycle(first))) {
    RefuseFree(first, InvalidFree::kSecond);
    CutCycle(first);
    count = 0;  // the rest of the list is leaked
  }
  if (HEAPTAP_UNLIKELY(slab->distant) && limit > kDistantBlocks) limit = kDistantBlocks;
  if (count <= limit) {
    slab->distant = false;
    slab->local_free = nullptr;
    slab->used = slab->carved;
    return first;
  }
  Block* last = first;
  for (uint64_t left = limit - 1; left != 0; left--) last = last->next;
  slab->local_free = last->next;
  last->next = nullptr;
  slab->used += static_cast<uint32_t>(limit);
  return first;
}

// Whether recycling now would give a poor batch.
inline bool IsPoor(const Slab* slab) {
  uint32_t count = slab->carved - slab->used;
  return count < kPoorBlocks && count < slab->capacity / kPoorShare;
}

inline void CountGoodBatch(HeapClass& one) {
  if (HEAPTAP_UNLIKELY(one.poor_batches != 0)) one.poor_batches--;
}

// Begins a turn of the slab, in which blocks of it become ready.
inline void Heap::BeginTurn(unsigned size_class, Slab* slab) {
  HeapClass& mine = classes[size_class];
  if (slab == mine.empty) mine.empty = nullptr;
  Settle(slab);
}

// Ends it: `count` blocks have become ready. Counts the last batch of the class, which is used up, and begins the next.
inline void Heap::EndTurn(unsigned size_class, Slab* slab, uint32_t count) {
  HeapClass& mine = classes[size_class];
  countdown().HandOut(size_class, count);
  mine.counts.handed_out.Add(count);
  mine.counts.refills.Add(1);
  counters->allocated += uint64_t{mine.batch} * kClassSize[size_class];
  mine.batch = count;
  slab->used_settled = slab->used;
  // By its next turn the slab probably has free blocks again, so it need not become full.
  if (!HasBlocks(slab)) mine.queue.MoveFirstToBack();
}

// Makes at most `limit` freed blocks of the slab ready, and takes and returns the first if `takes_first`. REQUIRES: the
// slab is the first of its queue, and its local_free is not empty.
[[gnu::always_inline]] inline void* Heap::Recycle(unsigned size_class, Slab* slab, uint64_t limit, bool takes_first) {
  BeginTurn(size_class, slab);
  const uint32_t used = slab->used;
  Block* first = TakeLocal(slab, limit);
  void* block = nullptr;
  if (takes_first) {
    block = first;
    first = first->next;
  }
  ready[size_class] = first;
  EndTurn(size_class, slab, slab->used - used);
  return block;
}

// Makes at most `limit` blocks ready, and takes and returns the first if `takes_first`. nullptr: out of memory, or not
// `takes_first`. REQUIRES: no block of the class is ready.
[[gnu::always_inline]] inline void* Heap::Refill(unsigned size_class, uint64_t limit, bool takes_first) {
  HeapClass& mine = classes[size_class];
  Slab* slab = mine.queue.first();
  const bool is_frequent = slab != nullptr && slab->local_free != nullptr && !IsPoor(slab);
  if (HEAPTAP_UNLIKELY(!is_frequent)) return RefillRarely(size_class, limit, takes_first);
  CountGoodBatch(mine);
  return Recycle(size_class, slab, limit, takes_first);
}

[[gnu::always_inline]] inline Heap::Taken Heap::Take(unsigned size_class) {
  observer::BeforeAllocation(this);
  void* block = TakeReady(size_class);
  if (HEAPTAP_UNLIKELY(block != nullptr)) return {block, 0};
  uint64_t limit = countdown().Allowance(size_class);
  uint64_t weight = 0;
  if (limit == 0) {
    weight = observer::CountdownOver(this, size_class);
    // The next allocation would find no block either, so the batch is taken now, which saves it the slow path. No new
    // slab is made for it, because it may never come.
    limit = countdown().Allowance(size_class);
    const Slab* slab = classes[size_class].queue.first();
    const bool has_blocks = slab != nullptr && HasBlocks(slab);
    if (limit == 0 || !has_blocks || core_options.owner_bits != 0) return {nullptr, weight};
  }
  // Where every call takes its slow path, blocks are handed out one by one.
  if (HEAPTAP_UNLIKELY(core_options.owner_bits != 0)) limit = 1;
  FollowPeak();
  if (HEAPTAP_UNLIKELY(taken_wakes != nullptr) || HEAPTAP_UNLIKELY(wakes.load(std::memory_order_relaxed) != nullptr)) {
    ProcessWakes();
  }
  return {Refill(size_class, limit, weight == 0), weight};
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_REFILL_H_
