// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/heap.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/invalid_free.h"
#include "allocator/core/units.h"

namespace heaptap {

constinit Heap empty_heap{};
constinit thread_local Heap* current_heap = &empty_heap;

namespace {

// Settling one slab for the peak costs about as much time as allocating this many bytes.
constexpr uint64_t kPeakBytesPerSlab = 1024;

}  // namespace

void Heap::RecordPeak() {
  uint64_t visited = SettleFrees();
  counters->RecordPeak(visited * kPeakBytesPerSlab);
}

uint32_t Heap::CountReady(unsigned size_class) const {
  size_t fresh_bytes = static_cast<size_t>(fresh_end[size_class] - fresh[size_class]);
  return Length(ready[size_class]) + static_cast<uint32_t>(fresh_bytes / kClassSize[size_class]);
}

// The number of blocks on a list of remotely freed blocks that should have `count` blocks. A double free makes a cycle,
// which is reported and cut: a short cycle always, any other if every call takes its slow path.
uint32_t CheckedCount(Block* first, uint32_t count, const Slab* slab) {
  bool is_cycle = count > slab->used || IsShortCycle(first);
  if (HEAPTAP_UNLIKELY(core_options.owner_bits != 0) && !is_cycle) {
    uint32_t length = 0;
    for (const Block* block = first; block != nullptr && length <= count; block = block->next) length++;
    is_cycle = length != count;
  }
  if (HEAPTAP_LIKELY(!is_cycle)) return count;
  RefuseFree(first, InvalidFree::kSecond);
  return CutCycle(first);
}

// Moves the remotely freed blocks to local_free. Visits the blocks that are already on local_free, which are few or
// none where time matters, and none of the moved blocks, which are in another processor's cache.
void Heap::CollectRemote(Slab* slab) {
  if (RemoteCount(slab->remote_free.load(std::memory_order_relaxed)) == 0) return;
  // Acquire: pairs with FreeRemotely; the links in the blocks are written.
  uintptr_t remote = slab->remote_free.exchange(0, std::memory_order_acquire);
  HEAPTAP_ASSERT((remote & kNotifyBit) == 0);
  Block* first = RemoteBlocks(remote);
  uint32_t count = CheckedCount(first, RemoteCount(remote), slab);
  Block** end = &slab->local_free;
  while (*end != nullptr) end = &(*end)->next;
  *end = first;
  HEAPTAP_ASSERT(slab->used >= count);
  slab->used -= count;
  slab->used_settled -= count;
  slab->distant |= count > kDistantBlocks;
}

void Heap::MarkFull(Slab* slab) {
  HEAPTAP_ASSERT(slab->queued && slab->used == slab->capacity);
  classes[slab->size_class].queue.Remove(slab);
  slab->owner.store(OwnerWord() | kFullBit, std::memory_order_relaxed);
  // A pending wake will find the slab full. A second wake would put it on the list twice.
  if (slab->wake_pending) return;
  uintptr_t expected = 0;
  if (slab->remote_free.compare_exchange_strong(expected, kNotifyBit, std::memory_order_relaxed)) return;
  CollectRemote(slab);
  // Release: as in MarkNotFull.
  slab->owner.store(OwnerWord(), std::memory_order_release);
  classes[slab->size_class].queue.PushBack(slab);
}

void Heap::MarkNotFull(Slab* slab) {
  // Release: if a borrower brings the slab back, the owner's fast path finds local_free as it was left.
  slab->owner.store(OwnerWord(), std::memory_order_release);
  classes[slab->size_class].queue.PushBack(slab);
}

void Heap::FreeInFullSlab(Slab* slab, Block* block) {
  const bool is_empty = PushLocalFree(slab, block);
  // A borrower may have brought the slab back since the caller looked.
  if ((slab->owner.load(std::memory_order_relaxed) & kFullBit) != 0) {
    uintptr_t expected = kNotifyBit;
    if (!slab->remote_free.compare_exchange_strong(expected, 0, std::memory_order_relaxed)) slab->wake_pending = true;
    MarkNotFull(slab);
  }
  if (is_empty) SlabEmptied(slab);
}

void Heap::SlabEmptied(Slab* slab) {
  HEAPTAP_ASSERT(slab->queued && IsEmptied(slab));
  if (slab->wake_pending) return;  // ProcessWake calls this again
  Renew(slab);
  Slab*& kept = classes[slab->size_class].empty;
  if (kept == nullptr || kept == slab) {
    kept = slab;
    return;
  }
  Release(slab);
}

// If the slab has returned blocks: forgets them.
void Heap::Renew(Slab* slab) {
  if (slab->returned == 0) return;
  Settle(slab);
  RenewSlab(slab);
}

void Heap::Release(Slab* slab) {
  if (slab == classes[slab->size_class].empty) classes[slab->size_class].empty = nullptr;
  classes[slab->size_class].queue.Remove(slab);
  Settle(slab);
  ReleaseUnits(slab);
  PurgeExcess();
}

void Heap::ReleaseIdle() {
  for (unsigned c = 0; c < kSmallClasses; c++) {
    Slab* slab = classes[c].empty;
    if (slab != nullptr && slab == classes[c].idle) Release(slab);
    classes[c].idle = classes[c].empty;
  }
}

// A slab for which a wake has come. nullptr: there is none.
Slab* Heap::NextWake() {
  if (taken_wakes == nullptr) {
    if (wakes.load(std::memory_order_relaxed) == nullptr) return nullptr;
    // Acquire: pairs with FreeRemotely; the links of the list are written.
    taken_wakes = wakes.exchange(nullptr, std::memory_order_acquire);
  }
  Slab* slab = taken_wakes;
  taken_wakes = slab->wake_next;
  slab->wake_pending = false;
  return slab;
}

// Brings back a slab for which a wake has come. False: there is no wake.
bool Heap::ProcessWake() {
  Slab* slab = NextWake();
  if (slab == nullptr) return false;
  CollectRemote(slab);
  if (!slab->queued) {
    // If the remote blocks were collected before this wake came, the slab is still full, and needs another wake.
    if (HasBlocks(slab)) {
      MarkNotFull(slab);
    } else {
      classes[slab->size_class].queue.PushBack(slab);
      MarkFull(slab);
    }
  }
  if (slab->queued && IsEmptied(slab)) SlabEmptied(slab);
  return true;
}

void Heap::RestoreWake(Slab* slab) {
  const bool is_full = (slab->owner.load(std::memory_order_relaxed) & kFullBit) != 0;
  const bool was_notified = (slab->remote_free.load(std::memory_order_relaxed) & kNotifyBit) == 0;
  if (!slab->wake_pending && !(is_full && was_notified)) return;
  Slab* first = wakes.load(std::memory_order_relaxed);
  for (const Slab* list : {taken_wakes, first}) {
    for (const Slab* other = list; other != nullptr; other = other->wake_next) {
      if (other == slab) return;
    }
  }
  slab->wake_next = first;
  wakes.store(slab, std::memory_order_relaxed);
}

void Heap::Scavenge() {
  while (ProcessWake()) continue;
  for (HeapClass& one : classes) {
    SlabList& slabs = one.queue;
    Slab* next_slab;
    for (Slab* slab = slabs.first(); slab != nullptr; slab = next_slab) {
      next_slab = slab->next;
      CollectRemote(slab);
      if (!IsEmptied(slab) || slab->wake_pending) continue;
      Renew(slab);
      Release(slab);
    }
  }
}

void Heap::SettleAllocations() {
  uint64_t bytes = 0;
  for (unsigned c = 0; c < kSmallClasses; c++) {
    uint32_t left = CountReady(c) + classes[c].rest.length;
    bytes += uint64_t{classes[c].batch - left} * kClassSize[c];
    classes[c].batch = left;
  }
  counters->allocated += bytes;
}

uint64_t Heap::SettleFrees() {
  // A slab outside the queue is full: its owner has freed nothing.
  uint64_t visited = 0;
  counters->deallocated += owed_frees;
  owed_frees = 0;
  for (HeapClass& one : classes) {
    SlabList& slabs = one.queue;
    for (Slab* slab = slabs.first(); slab != nullptr; slab = slab->next, visited++) Settle(slab);
  }
  return visited;
}

void Heap::PutBackReady(unsigned size_class) {
  HeapClass& mine = classes[size_class];
  const uint32_t handed_out = CountReady(size_class);
  const uint32_t count = handed_out + mine.rest.length;
  if (count == 0) return;
  // The rest joins the ready list.
  Block** end = &ready[size_class];
  while (*end != nullptr) end = &(*end)->next;
  *end = mine.rest.first;
  mine.rest = {};
  Block* list = ready[size_class];
  Slab* slab = SlabOfBlock(list != nullptr ? reinterpret_cast<char*>(list) : fresh[size_class]);
  Settle(slab);
  if (list != nullptr) {
    Block* last = list;
    while (last->next != nullptr) last = last->next;
    last->next = slab->local_free;
    slab->local_free = list;
    ready[size_class] = nullptr;
  } else {
    HEAPTAP_ASSERT(fresh_end[size_class] == SlabMemory(slab) + slab->carved * slab->size);
    slab->carved -= count;
    fresh[size_class] = fresh_end[size_class];
  }
  slab->used -= count;
  slab->used_settled = slab->used;
  mine.batch = 0;
  mine.counts.taken_back.Add(count);
  mine.counts.flushes.Add(1);
  countdown().TakeBack(size_class, handed_out);
}

void Heap::PutBackReady() {
  SettleAllocations();
  for (unsigned c = 0; c < kSmallClasses; c++) PutBackReady(c);
}

void Heap::Flush() {
  PutBackReady();
  SettleFrees();  // the heap's next thread must not count the frees of this one
  Scavenge();
}

void Heap::LeaveSlabs() {
  PutBackReady();
  SettleFrees();
  while (NextWake() != nullptr) continue;
  for (HeapClass& one : classes) {
    for (Slab* slab = one.queue.first(); slab != nullptr; slab = slab->next) {
      slab->owner.store(kLeftOwner, std::memory_order_relaxed);
    }
    one.queue = {};
    one.empty = nullptr;
    one.idle = nullptr;
    one.poor_batches = 0;
  }
  is_aging = false;
  has_more = false;
}

void Heap::ForgetCounts() {
  for (HeapClass& one : classes) {
    HEAPTAP_ASSERT(one.queue.first() == nullptr);
    one.counts.Clear();
  }
}

void PushWake(Heap* heap, Slab* slab) {
  Slab* head = heap->wakes.load(std::memory_order_relaxed);
  do {
    slab->wake_next = head;
    // Release: the owner sees the slab's link.
  } while (!heap->wakes.compare_exchange_weak(head, slab, std::memory_order_release, std::memory_order_relaxed));
}

void FreeRemotely(Slab* slab, Block* block) {
  // Read before the block is free: afterwards the slab may get another owner.
  Heap* heap = reinterpret_cast<Heap*>(slab->owner.load(std::memory_order_relaxed) & ~(kFullBit | kSlowBit));
  uintptr_t old = slab->remote_free.load(std::memory_order_relaxed);
  do {
    // Set before the bit is taken: if the process forks in between, the child must find this wake and restore it.
    if ((old & kNotifyBit) != 0) current_heap->waking.store(slab, std::memory_order_relaxed);
    block->next = RemoteBlocks(old);
    // Release: this thread's uses of the block, and the link in it, come before the owner's next use.
  } while (!slab->remote_free.compare_exchange_weak(old, RemoteWord(block, RemoteCount(old) + 1),
                                                    std::memory_order_release, std::memory_order_relaxed));
  if ((old & kNotifyBit) == 0) return;
  // The slab is not released before this wake arrives.
  PushWake(heap, slab);
  // Release: the child of a fork finds the wake on the list, or else here.
  current_heap->waking.store(nullptr, std::memory_order_release);
}

}  // namespace heaptap
