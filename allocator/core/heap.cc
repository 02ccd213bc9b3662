// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/heap.h"

#include "allocator/core/invalid_free.h"
#include "allocator/core/units.h"

namespace heaptap {

constinit Heap empty_heap{};
constinit thread_local Heap* current_heap = &empty_heap;

namespace {

// A batch of untouched blocks has about this many bytes, so that a rarely used class takes little memory...
constexpr uint32_t kCarveBytes = 4096;
// ... and grows with the use of the slab, up to this many blocks where blocks are larger.
constexpr uint32_t kCarveBlocks = 16;

constexpr std::array<uint32_t, kSmallClasses> kFirstBatch = [] {
  std::array<uint32_t, kSmallClasses> batch{};
  for (unsigned c = 0; c < kSmallClasses; c++) batch[c] = kClassSize[c] < kCarveBytes ? kCarveBytes / kClassSize[c] : 1;
  return batch;
}();

// A recycled batch of fewer blocks is poor: it hardly repays the slow path. The limit is a small share of the slab:
// for batches of n blocks, the slabs of a class must have n free blocks each on average.
constexpr uint32_t kPoorShare = 16;
constexpr uint32_t kPoorBlocks = 16;
// After this many poor batches, less the good ones, the class gets another slab.
constexpr uint8_t kPoorBatches = 16;

// Settling one slab for the peak costs about as much time as allocating this many bytes.
constexpr uint64_t kPeakBytesPerSlab = 1024;

uint32_t Length(const Block* block) {
  uint32_t length = 0;
  for (; block != nullptr; block = block->next) length++;
  return length;
}

uint32_t Minimum(uint64_t a, uint32_t b) { return a < b ? static_cast<uint32_t>(a) : b; }

uint32_t CarveCount(const Slab* slab, uint64_t limit) {
  uint32_t count = kFirstBatch[slab->size_class];
  if (count < kCarveBlocks) count += Minimum(slab->carved / 2, kCarveBlocks - count);
  return Minimum(limit, Minimum(slab->capacity - slab->carved, count));
}

// Takes at most `limit` blocks off local_free.
Block* TakeLocal(Slab* slab, uint64_t limit) {
  Block* first = slab->local_free;
  uint32_t count = slab->carved - slab->used;
  slab->fresh = false;
  if (HEAPTAP_UNLIKELY(IsShortCycle(first))) {
    RefuseFree(first, InvalidFree::kSecond);
    CutCycle(first);
    count = 0;  // the rest of the list is leaked
  }
  if (count <= limit) {
    slab->local_free = nullptr;
    slab->used = slab->carved;
    return first;
  }
  Block* last = first;
  for (uint64_t i = 1; i < limit; i++) last = last->next;
  slab->local_free = last->next;
  last->next = nullptr;
  slab->used += static_cast<uint32_t>(limit);
  return first;
}

// Out of line, so that the check before it is inlined.
[[gnu::cold, gnu::noinline]] void RecordPeak(Heap* heap) {
  uint64_t visited = heap->SettleFrees();
  heap->counters->RecordPeak(visited * kPeakBytesPerSlab);
}

void* NoBlock(size_t) { return nullptr; }

bool HasUntouched(const Slab* slab) { return slab->carved < slab->capacity; }

bool HasBlocks(const Slab* slab) { return slab->local_free != nullptr || HasUntouched(slab); }

// Whether recycling now would give a poor batch.
bool IsPoor(const Slab* slab) {
  uint32_t count = slab->carved - slab->used;
  return count < kPoorBlocks && count < slab->capacity / kPoorShare;
}

}  // namespace

void Heap::FollowPeak() {
  if (counters != nullptr && HEAPTAP_UNLIKELY(counters->PeakIsDue())) RecordPeak(this);
}

Heap::Taken Heap::Take(unsigned size_class) {
  observer::BeforeAllocation(this);
  void* block = TakeReady(size_class);
  if (block == nullptr) {
    uint64_t allowance = countdown().Allowance(size_class);
    if (allowance == 0) return {nullptr, observer::CountdownOver(this, size_class)};
    FollowPeak();
    if (wakes.load(std::memory_order_relaxed) != nullptr) ProcessWakes();
    // Where every call takes its slow path, blocks are handed out one by one.
    block = Refill(size_class, core_options.owner_bits != 0 ? 1 : allowance);
  }
  return {block, 0};
}

void* Heap::TakeReady(unsigned size_class) {
  Block* block = ready[size_class];
  if (block == nullptr) return TakeFreshOr<NoBlock>(size_class, 0);
  ready[size_class] = block->next;
  return block;
}

uint32_t Heap::CountReady(unsigned size_class) const {
  size_t fresh_bytes = static_cast<size_t>(fresh_end[size_class] - fresh[size_class]);
  return Length(ready[size_class]) + static_cast<uint32_t>(fresh_bytes / kClassSize[size_class]);
}

// Counts the last batch of the class, which is used up, and begins the next, which has `count` blocks.
inline void Heap::CountRefill(unsigned size_class, uint32_t count) {
  countdown().HandOut(size_class, count);
  counts[size_class].handed_out.Add(count);
  counts[size_class].refills.Add(1);
  if (counters != nullptr) counters->allocated += uint64_t{batch[size_class]} * kClassSize[size_class];
  batch[size_class] = count;
}

// Counts what the owner has freed since the last call. REQUIRES: `used` has not changed in another way since.
inline void Heap::Settle(Slab* slab) {
  HEAPTAP_ASSERT(slab->used_settled >= slab->used);
  if (counters != nullptr) counters->deallocated += uint64_t{slab->used_settled - slab->used} * slab->size;
  slab->used_settled = slab->used;
}

// Moves the remotely freed blocks to local_free.
void Heap::CollectRemote(Slab* slab) {
  if ((slab->remote_free.load(std::memory_order_relaxed) & ~kNotifyBit) == 0) return;
  // Acquire: pairs with FreeRemotely; the links in the blocks are written.
  uintptr_t remote = slab->remote_free.exchange(0, std::memory_order_acquire);
  HEAPTAP_ASSERT((remote & kNotifyBit) == 0);
  Block* first = reinterpret_cast<Block*>(remote);
  uint32_t count = 1;
  Block* last = first;
  for (; last->next != nullptr && count <= slab->used; last = last->next) count++;
  if (HEAPTAP_UNLIKELY(count > slab->used)) {
    RefuseFree(first, InvalidFree::kSecond);
    count = CutCycle(first);
    for (last = first; last->next != nullptr;) last = last->next;
  }
  last->next = slab->local_free;
  slab->local_free = first;
  HEAPTAP_ASSERT(slab->used >= count);
  slab->used -= count;
  slab->used_settled -= count;
  counts[slab->size_class].collected.Add(count);
}

// Makes at most `limit` blocks ready and takes the first. nullptr: out of memory. REQUIRES: no block of the class is
// ready.
void* Heap::Refill(unsigned size_class, uint64_t limit) {
  SlabList& slabs = queue[size_class];
  Slab* slab;
  bool poor = false;
  while ((slab = slabs.first()) != nullptr) {
    poor = IsPoor(slab);
    if (poor) {
      CollectRemote(slab);
      poor = IsPoor(slab);
    }
    if (HasBlocks(slab)) break;
    MarkFull(slab);
  }
  if (slab == nullptr || (poor && !HasUntouched(slab) && ++poor_batches[size_class] >= kPoorBatches)) {
    poor_batches[size_class] = 0;
    Slab* another = NewSlab(size_class, OwnerWord());
    if (another != nullptr) {
      slab = another;
      slabs.PushFront(slab);
    } else if (slab == nullptr) {
      return nullptr;
    }
  } else if (!poor && poor_batches[size_class] != 0) {
    poor_batches[size_class]--;
  }
  if (slab == empty[size_class]) empty[size_class] = nullptr;

  Settle(slab);
  uint32_t used = slab->used;
  bool recycle = slab->local_free != nullptr && !(poor && HasUntouched(slab));
  void* block;
  if (recycle) {
    Block* first = TakeLocal(slab, limit);
    ready[size_class] = first->next;
    block = first;
  } else {
    uint32_t count = CarveCount(slab, limit);
    char* first = Carve(slab, count);
    fresh[size_class] = first + slab->size;
    fresh_end[size_class] = first + count * slab->size;
    block = first;
  }
  CountRefill(size_class, slab->used - used);
  slab->used_settled = slab->used;
  if (!HasBlocks(slab) && slab->next != nullptr) {
    // By its next turn the slab probably has free blocks again, so it need not become full.
    slabs.Remove(slab);
    slabs.PushBack(slab);
  }
  return block;
}

void Heap::MarkFull(Slab* slab) {
  HEAPTAP_ASSERT(slab->queued && slab->used == slab->capacity);
  queue[slab->size_class].Remove(slab);
  slab->owner.store(OwnerWord() | kFullBit, std::memory_order_relaxed);
  // A pending wake will find the slab full. A second wake would put it on the list twice.
  if (slab->wake_pending) return;
  uintptr_t expected = 0;
  if (slab->remote_free.compare_exchange_strong(expected, kNotifyBit, std::memory_order_relaxed)) return;
  CollectRemote(slab);
  slab->owner.store(OwnerWord(), std::memory_order_relaxed);
  queue[slab->size_class].PushBack(slab);
}

void Heap::MarkNotFull(Slab* slab) {
  slab->owner.store(OwnerWord(), std::memory_order_relaxed);
  queue[slab->size_class].PushBack(slab);
}

void Heap::FreeInFullSlab(Slab* slab, Block* block) {
  block->next = slab->local_free;
  slab->local_free = block;
  slab->used--;
  uintptr_t expected = kNotifyBit;
  if (!slab->remote_free.compare_exchange_strong(expected, 0, std::memory_order_relaxed)) slab->wake_pending = true;
  MarkNotFull(slab);
  if (slab->used == 0) SlabEmptied(slab);
}

void Heap::SlabEmptied(Slab* slab) {
  HEAPTAP_ASSERT(slab->queued && slab->used == 0);
  if (slab->wake_pending) return;  // ProcessWakes calls this again
  Slab*& kept = empty[slab->size_class];
  if (kept == nullptr || kept == slab) {
    kept = slab;
    return;
  }
  Release(slab);
}

void Heap::Release(Slab* slab) {
  if (slab == empty[slab->size_class]) empty[slab->size_class] = nullptr;
  queue[slab->size_class].Remove(slab);
  Settle(slab);
  ReleaseUnits(slab);
}

void Heap::ReleaseIdle() {
  for (unsigned c = 0; c < kSmallClasses; c++) {
    Slab* slab = empty[c];
    if (slab != nullptr && slab == idle[c]) Release(slab);
    idle[c] = empty[c];
  }
}

void Heap::ProcessWakes() {
  // Acquire: pairs with FreeRemotely; the links of the list are written.
  Slab* slab = wakes.exchange(nullptr, std::memory_order_acquire);
  while (slab != nullptr) {
    Slab* next_slab = slab->wake_next;
    slab->wake_pending = false;
    CollectRemote(slab);
    if (!slab->queued) {
      // If the remote blocks were collected before this wake came, the slab is still full, and needs another wake.
      if (HasBlocks(slab)) {
        MarkNotFull(slab);
      } else {
        queue[slab->size_class].PushBack(slab);
        MarkFull(slab);
      }
    }
    if (slab->queued && slab->used == 0) SlabEmptied(slab);
    slab = next_slab;
  }
}

void Heap::RestoreWake(Slab* slab) {
  const bool is_full = (slab->owner.load(std::memory_order_relaxed) & kFullBit) != 0;
  const bool was_notified = (slab->remote_free.load(std::memory_order_relaxed) & kNotifyBit) == 0;
  if (!slab->wake_pending && !(is_full && was_notified)) return;
  Slab* first = wakes.load(std::memory_order_relaxed);
  for (Slab* other = first; other != nullptr; other = other->wake_next) {
    if (other == slab) return;
  }
  slab->wake_next = first;
  wakes.store(slab, std::memory_order_relaxed);
}

void Heap::Scavenge() {
  ProcessWakes();
  for (SlabList& slabs : queue) {
    Slab* next_slab;
    for (Slab* slab = slabs.first(); slab != nullptr; slab = next_slab) {
      next_slab = slab->next;
      CollectRemote(slab);
      if (slab->used == 0 && !slab->wake_pending) Release(slab);
    }
  }
}

void Heap::SettleAllocations() {
  uint64_t bytes = 0;
  for (unsigned c = 0; c < kSmallClasses; c++) {
    uint32_t left = CountReady(c);
    bytes += uint64_t{batch[c] - left} * kClassSize[c];
    batch[c] = left;
  }
  if (counters != nullptr) counters->allocated += bytes;
}

uint64_t Heap::SettleFrees() {
  // A slab outside the queue is full: its owner has freed nothing.
  uint64_t visited = 0;
  for (SlabList& slabs : queue) {
    for (Slab* slab = slabs.first(); slab != nullptr; slab = slab->next, visited++) Settle(slab);
  }
  return visited;
}

void Heap::PutBackReady(unsigned size_class) {
  uint32_t count = CountReady(size_class);
  if (count == 0) return;
  Block* list = ready[size_class];
  Slab* slab = SlabOf(list != nullptr ? reinterpret_cast<char*>(list) : fresh[size_class], ShiftOf(size_class));
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
  batch[size_class] = 0;
  counts[size_class].taken_back.Add(count);
  counts[size_class].flushes.Add(1);
  countdown().TakeBack(size_class, count);
}

void Heap::PutBackReady() {
  SettleAllocations();
  for (unsigned c = 0; c < kSmallClasses; c++) PutBackReady(c);
}

void Heap::SkipReady() {
  for (unsigned c = 0; c < kSmallClasses; c++) countdown().Skip(c, CountReady(c));
}

void Heap::Flush() {
  PutBackReady();
  SettleFrees();  // the heap's next thread must not count the frees of this one
  Scavenge();
}

void FreeRemotely(Slab* slab, Block* block) {
  // Read before the block is free: afterwards the slab may get another owner.
  Heap* heap = reinterpret_cast<Heap*>(slab->owner.load(std::memory_order_relaxed) & ~(kFullBit | kSlowBit));
  uintptr_t old = slab->remote_free.load(std::memory_order_relaxed);
  do {
    // Set before the bit is taken: if the process forks in between, the child must find this wake and restore it.
    if ((old & kNotifyBit) != 0) current_heap->waking.store(slab, std::memory_order_relaxed);
    block->next = reinterpret_cast<Block*>(old & ~kNotifyBit);
    // Release: this thread's uses of the block, and the link in it, come before the owner's next use.
  } while (!slab->remote_free.compare_exchange_weak(old, reinterpret_cast<uintptr_t>(block), std::memory_order_release,
                                                    std::memory_order_relaxed));
  if ((old & kNotifyBit) == 0) return;
  // The slab is not released before this wake arrives.
  Slab* head = heap->wakes.load(std::memory_order_relaxed);
  do {
    slab->wake_next = head;
    // Release: the owner sees the slab's link.
  } while (!heap->wakes.compare_exchange_weak(head, slab, std::memory_order_release, std::memory_order_relaxed));
  current_heap->waking.store(nullptr, std::memory_order_relaxed);
}

}  // namespace heaptap
