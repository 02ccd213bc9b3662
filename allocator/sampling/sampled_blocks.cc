// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/sampled_blocks.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/core/invalid_free.h"
#include "allocator/core/observer.h"
#include "allocator/core/peek.h"
#include "allocator/core/units.h"
#include "allocator/platform/mutex.h"
#include "allocator/sampling/report.h"

namespace heaptap {
namespace {

// Set before the first block is taken, so relaxed loads suffice.
constinit std::atomic<bool> keeps_requested;

bool KeepsRequested() { return keeps_requested.load(std::memory_order_relaxed); }

// What is stored after the blocks of a slab: the serial number of each sample, and perhaps the requested size.
using Requested = uint16_t;
static_assert(kSmallMaximum <= UINT16_MAX);

uint64_t* Serials(const Slab* slab) {
  return reinterpret_cast<uint64_t*>(SlabMemory(slab) + slab->capacity * slab->size);
}

Requested* RequestedSizes(const Slab* slab) { return reinterpret_cast<Requested*>(Serials(slab) + slab->capacity); }

size_t NoteBytes() { return sizeof(uint64_t) + (KeepsRequested() ? sizeof(Requested) : 0); }

size_t BlockIndex(const Slab* slab, const void* block) {
  return static_cast<size_t>(static_cast<const char*>(block) - SlabMemory(slab)) / slab->size;
}

SampledPool& PoolOf(const Slab* slab) { return ArenaOf(slab->arena).pools[slab->size_class]; }

// REQUIRES: the pool's lock is held.
Slab* NewSampledSlab(Arena& arena, unsigned size_class) {
  HEAPTAP_ASSERT(arena.pools[size_class].mutex.IsMine());
  Slab* slab = NewSlab(size_class, kSampledOwner, arena.index);
  if (slab != nullptr) {
    arena.pools[size_class].slabs_made++;
    slab->capacity = static_cast<uint32_t>(SlabBytes(slab) / (slab->size + NoteBytes()));
  }
  return slab;
}

// These three are inlined into AllocateBlock and FreeBlock.

[[gnu::always_inline]] inline Block* Take(Arena& arena, unsigned size_class, size_t requested, uint64_t serial) {
  HEAPTAP_ASSERT(!KeepsRequested() || requested <= kSmallMaximum);
  SampledPool& pool = arena.pools[size_class];
  MutexLock lock(pool.mutex);
  Slab* slab = pool.slabs.first();
  if (slab == nullptr) {
    slab = NewSampledSlab(arena, size_class);
    if (slab == nullptr) return nullptr;
    pool.slabs.PushFront(slab);
  }
  Block* block = slab->local_free;
  if (block != nullptr) {
    slab->local_free = block->next;
    slab->used++;
  } else {
    block = reinterpret_cast<Block*>(Carve(slab, 1));
  }
  if (slab->used == slab->capacity) pool.slabs.Remove(slab);
  pool.allocations++;
  AddToFigure(&heaptap_statistics::sampled_objects, 1);
  const size_t index = BlockIndex(slab, block);
  Serials(slab)[index] = serial;
  if (KeepsRequested()) RequestedSizes(slab)[index] = static_cast<Requested>(requested);
  return block;
}

[[gnu::always_inline]] inline observer::Sample Read(const Slab* slab, const Block* block) {
  const size_t index = BlockIndex(slab, block);
  return {slab->size, KeepsRequested() ? RequestedSizes(slab)[index] : slab->size, Serials(slab)[index]};
}

// False: the block is free already. Atomic, because two threads may free it at the same time.
[[gnu::always_inline]] inline bool End(const Slab* slab, const Block* block) {
  uint64_t* serial = &Serials(slab)[BlockIndex(slab, block)];
  if (HEAPTAP_LIKELY(__atomic_exchange_n(serial, observer::kEnded, __ATOMIC_RELAXED) != observer::kEnded)) return true;
  RefuseFree(block, InvalidFree::kSecond);
  return false;
}

[[gnu::always_inline]] inline void Return(Slab* slab, Block* block) {
  HEAPTAP_ASSERT(Serials(slab)[BlockIndex(slab, block)] == observer::kEnded);
  SampledPool& pool = PoolOf(slab);
  AddToFigure(&heaptap_statistics::sampled_objects, -1);
  MutexLock lock(pool.mutex);
  block->next = slab->local_free;
  slab->local_free = block;
  slab->used--;
  if (!slab->queued) pool.slabs.PushFront(slab);
  if (slab->used != 0 || (slab->next == nullptr && slab->previous == nullptr)) return;
  pool.slabs.Remove(slab);
  ReleaseUnits(slab);
}

template <typename Act>
void ForEachPool(Act act) {
  ForEachArena([&](Arena& arena) {
    for (SampledPool& pool : arena.pools) act(pool);
  });
}

}  // namespace

void KeepRequestedSizes(bool wanted) { keeps_requested.store(wanted, std::memory_order_relaxed); }

void* observer::TakeBlock(Arena& arena, unsigned size_class, size_t requested, uint64_t serial) {
  return Take(arena, size_class, requested, serial);
}

observer::Sample observer::SampleOf(const Slab* slab, const Block* block) { return Read(slab, block); }

bool observer::EndSample(const Slab* slab, const Block* block) { return End(slab, block); }

void observer::ReturnBlock(Slab* slab, Block* block) { Return(slab, block); }

void* observer::AllocateBlock(Arena& arena, unsigned size_class, size_t requested, uint64_t weight) {
  const size_t usable = kClassSize[size_class];
  const auto frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  // Counts have no weights.
  const uint32_t known = weight == usable ? counting::Find(frame) : 0;
  const uint32_t counts = HEAPTAP_UNLIKELY(counting::is_verifying) ? 0 : known;
  const uint64_t serial = counts != 0 ? counting::SerialOf(counts) : NewSerial();
  Block* block = Take(arena, size_class, requested, serial);
  if (block == nullptr) return nullptr;
  if (counts == 0) {
    ReportAllocated(block, {usable, requested, serial}, weight, frame);
    if (HEAPTAP_UNLIKELY(known != 0)) counting::Verify(known, serial);
  } else {
    ReportCounted(block, {usable, requested, serial}, counts);
  }
  return block;
}

void observer::FreeBlock(Slab* slab, Block* block) {
  const Sample sample = Read(slab, block);
  if (!End(slab, block)) return;
  ReportFreed(block, sample);
  Return(slab, block);
}

bool observer::DiscardBlocks(Arena& arena, Slab* slab) {
  const unsigned size_class = Peek(slab->size_class);
  if (size_class >= kSmallClasses) return false;
  SampledPool& pool = arena.pools[size_class];
  {
    MutexLock lock(pool.mutex);
    // Under the lock, a slab of the pool stays in the pool. Acquire: pairs with NewSlab.
    const bool is_mine = slab->owner.load(std::memory_order_acquire) == kSampledOwner &&
                         Peek(slab->arena) == arena.index && Peek(slab->size_class) == size_class;
    if (!is_mine) return false;
    // Keeps the slab from being released.
    slab->used++;
  }
  const uint32_t carved = slab->carved;
  for (uint32_t index = 0; index < carved; index++) {
    if (Serials(slab)[index] == kEnded) continue;
    FreeBlock(slab, reinterpret_cast<Block*>(SlabMemory(slab) + index * slab->size));
  }
  MutexLock lock(pool.mutex);
  slab->used--;
  if (slab->queued) pool.slabs.Remove(slab);
  return true;
}

void observer::ForgetCounts(Arena* arena) {
  for (SampledPool& pool : arena->pools) {
    MutexLock lock(pool.mutex);
    pool.allocations = 0;
    pool.slabs_made = 0;
  }
}

SampledCounts ReadSampledCounts(Arena& arena, unsigned size_class) {
  SampledPool& pool = arena.pools[size_class];
  MutexLock lock(pool.mutex);
  return {pool.allocations, pool.slabs_made};
}

void observer::Trim() {
  ForEachPool([](SampledPool& pool) {
    MutexLock lock(pool.mutex);
    // Return keeps an empty slab only if it is the only one in the list; others that join the list come before it.
    Slab* slab = pool.slabs.last();
    if (slab == nullptr || slab->used != 0) return;
    pool.slabs.Remove(slab);
    ReleaseUnits(slab);
  });
}

#ifdef HEAPTAP_DEBUG
void CheckSampledPools() {
  HEAPTAP_ASSERT(Mutex::Holds(LockRank::kPool) || IsOnlyThread());
  Checked checked{};
  ForEachArena([&](const Arena& arena) {
    for (unsigned c = 0; c < kSmallClasses; c++) CheckQueue(arena.pools[c].slabs, c, kSampledOwner, &checked);
  });
}
#endif

void LockSampledPools() {
  ForEachPool([](SampledPool& pool) { pool.mutex.Lock(); });
}

void UnlockSampledPools() {
  ForEachPool([](SampledPool& pool) { pool.mutex.Unlock(); });
}

void ResetSampledPoolLocks() {
  ForEachPool([](SampledPool& pool) { pool.mutex.Reset(); });
}

}  // namespace heaptap
