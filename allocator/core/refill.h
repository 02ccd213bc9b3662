// SPDX-License-Identifier: Apache-2.0
//
// The slow path of malloc within a heap, Heap::Take, which is inlined into each slow path of allocate.cc: a call would
// cost a tenth as much as the whole slow path. The rare parts are in refill.cc.
#ifndef HEAPTAP_ALLOCATOR_CORE_REFILL_H_
#define HEAPTAP_ALLOCATOR_CORE_REFILL_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/heap.h"
#include "allocator/core/invalid_free.h"
#include "allocator/core/observer.h"
#include "allocator/core/options.h"

namespace heaptap {

// A recycled batch is "poor" if it has fewer than kPoorBlocks blocks, and fewer than one part in kPoorShare of the
// slab's blocks: it hardly pays for its slow path. The share is small, because to get n blocks from each batch the
// slabs of a class must keep n free blocks each.
inline constexpr uint32_t kPoorShare = 16;
inline constexpr uint32_t kPoorBlocks = 16;
// After this many poor batches, less the good ones, the class gets another slab.
inline constexpr uint8_t kPoorBatches = 16;

inline constexpr uint32_t kAllBlocks = UINT32_MAX;

// Cuts a list behind `count` blocks, and returns what follows them. REQUIRES: 1 <= count < length of the list.
inline Block* CutBehind(Block* last, uint32_t count) {
  HEAPTAP_ASSERT(count != 0);
  while (--count != 0) last = last->next;
  Block* behind = last->next;
  HEAPTAP_ASSERT(behind != nullptr);
  last->next = nullptr;
  return behind;
}

// Takes at most `most` blocks off local_free.
[[gnu::always_inline]] inline BlockList TakeLocal(Slab* slab, uint32_t most) {
  BlockList taken{slab->local_free, slab->carved - slab->used};
  slab->fresh = false;
  if (HEAPTAP_UNLIKELY(IsShortCycle(taken.first))) {
    RefuseFree(taken.first, InvalidFree::kSecond);
    taken.length = CutCycle(taken.first);  // the rest of the list is leaked
  } else if (taken.length > most) {
    slab->local_free = CutBehind(taken.first, most);
    slab->used += most;
    return {taken.first, most};
  }
  if (most != kAllBlocks) slab->distant = false;
  slab->local_free = nullptr;
  slab->used = slab->carved;
  return taken;
}

// Whether recycling now would give a poor batch.
inline bool IsPoor(const Slab* slab) {
  uint32_t count = slab->carved - slab->used;
  return count < kPoorBlocks && count < slab->capacity / kPoorShare;
}

inline void CountGoodBatch(HeapClass& one) {
  if (HEAPTAP_UNLIKELY(one.poor_batches != 0)) one.poor_batches--;
}

// Begins a turn of the slab, in which it gives a batch. Counts the last batch of the class, which is used up, and what
// the owner has freed since the slab's last turn.
inline void Heap::BeginTurn(unsigned size_class, Slab* slab) {
  HeapClass& mine = classes[size_class];
  if (slab == mine.empty) mine.empty = nullptr;
  counters->allocated += uint64_t{mine.batch} * slab->size;
  counters->deallocated += UnsettledBytes(slab);
}

// Ends the turn. `count`: the blocks of the batch.
inline void Heap::EndTurn(unsigned size_class, Slab* slab, uint32_t count) {
  HeapClass& mine = classes[size_class];
  // By its next turn the slab probably has free blocks again, so it need not become full.
  if (!HasBlocks(slab)) mine.queue.MoveFirstToBack();
  slab->used_settled = slab->used;
  mine.counts.handed_out.Add(count);
  mine.counts.refills.Add(1);
  mine.batch = count;
}

// Puts blocks of the list on the ready list, as many as the countdown allows, and makes the others the rest. REQUIRES:
// the class has no block that is ready or in a rest, and the countdown allows at least one.
[[gnu::always_inline]] inline void Heap::MakeReady(unsigned size_class, BlockList list) {
  HEAPTAP_ASSERT(IsUsedUp(size_class) && countdown().Allowance(size_class) != 0);
  const uint64_t limit = countdown().Allowance(size_class);
  if (HEAPTAP_UNLIKELY(list.length > limit)) {
    const auto count = static_cast<uint32_t>(limit);
    const uint32_t others = list.length - count;
    // Takes the blocks before the cut or those behind it, so that the walk is along the shorter part.
    const bool takes_front = count <= others;
    Block* behind = CutBehind(list.first, takes_front ? count : others);
    classes[size_class].rest = {takes_front ? behind : list.first, others};
    list = {takes_front ? list.first : behind, count};
  }
  countdown().HandOut(size_class, list.length);
  ready[size_class] = list.first;
}

// Makes the rest ready. REQUIRES: the rest is not empty; and as for MakeReady.
[[gnu::always_inline]] inline void Heap::MakeRestReady(unsigned size_class) {
  HEAPTAP_ASSERT(classes[size_class].rest.first != nullptr);
  const BlockList rest = classes[size_class].rest;
  classes[size_class].rest = {};
  MakeReady(size_class, rest);
}

// Makes a batch of at most `most` freed blocks, and takes one. REQUIRES: the slab is the first of its queue, its
// local_free is not empty; and as for MakeReady.
[[gnu::always_inline]] inline void* Heap::Recycle(unsigned size_class, Slab* slab, uint32_t most) {
  HEAPTAP_ASSERT(slab == classes[size_class].queue.first() && slab->local_free != nullptr);
  BeginTurn(size_class, slab);
  const uint32_t used = slab->used;
  const BlockList taken = TakeLocal(slab, most);
  EndTurn(size_class, slab, slab->used - used);
  MakeReady(size_class, taken);
  return TakeReady(size_class);
}

// Makes a batch, and takes a block. nullptr: out of memory. REQUIRES: as for MakeReady.
[[gnu::always_inline]] inline void* Heap::Refill(unsigned size_class) {
  HEAPTAP_ASSERT(IsUsedUp(size_class) && countdown().Allowance(size_class) != 0);
  HeapClass& mine = classes[size_class];
  Slab* slab = mine.queue.first();
  const bool is_frequent =
      slab != nullptr && slab->local_free != nullptr && !IsPoor(slab) && !slab->distant && core_options.owner_bits == 0;
  if (HEAPTAP_UNLIKELY(!is_frequent)) return RefillRarely(size_class);
  CountGoodBatch(mine);
  return Recycle(size_class, slab, kAllBlocks);
}

[[gnu::always_inline]] inline Heap::Taken Heap::Take(unsigned size_class) {
  observer::BeforeAllocation(this);
  void* block = TakeReady(size_class);
  if (HEAPTAP_UNLIKELY(block != nullptr)) return {block, 0};
  const bool has_rest = classes[size_class].rest.first != nullptr;
  if (countdown().Allowance(size_class) == 0) {
    const uint64_t weight = observer::CountdownOver(this, size_class);
    // The next allocation would find no block either, so this saves it the slow path.
    if (has_rest && countdown().Allowance(size_class) != 0) MakeRestReady(size_class);
    return {nullptr, weight};
  }
  // This happens only if the observer has begun another countdown.
  if (HEAPTAP_UNLIKELY(has_rest)) {
    MakeRestReady(size_class);
    return {TakeReady(size_class), 0};
  }
  FollowPeak();
  if (HEAPTAP_UNLIKELY(taken_wakes != nullptr) || HEAPTAP_UNLIKELY(wakes.load(std::memory_order_relaxed) != nullptr)) {
    ProcessWakes();
  }
  return {Refill(size_class), 0};
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_REFILL_H_
