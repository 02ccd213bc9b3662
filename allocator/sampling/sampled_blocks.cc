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

// These are inlined into AllocateBlock and FreeBlock.

// A block of the slab, which has a free one.
[[gnu::always_inline]] inline Block* TakeFrom(Slab* slab) {
  Block* block = slab->local_free;
  if (block == nullptr) return reinterpret_cast<Block*>(Carve(slab, 1));
  slab->local_free = block->next;
  slab->used++;
  return block;
}

[[gnu::always_inline]] inline void Begin(Slab* slab, Block* block, size_t requested, uint64_t serial) {
  const size_t index = BlockIndex(slab, block);
  Serials(slab)[index] = serial;
  if (KeepsRequested()) RequestedSizes(slab)[index] = static_cast<Requested>(requested);
}

// `kept`: receives some more blocks; null: the thread keeps none.
[[gnu::always_inline]] inline Block* Take(Arena& arena, unsigned size_class, size_t requested, uint64_t serial,
                                          KeptBlocks* kept) {
  HEAPTAP_ASSERT(!KeepsRequested() || requested <= kSmallMaximum);
  SampledPool& pool = arena.pools[size_class];
  MutexLock lock(pool.mutex);
  Slab* slab = pool.slabs.first();
  if (slab == nullptr) {
    slab = NewSampledSlab(arena, size_class);
    if (slab == nullptr) return nullptr;
    pool.slabs.PushFront(slab);
  }
  Block* const block = TakeFrom(slab);
  Begin(slab, block, requested, serial);
  pool.allocations++;
  AddToFigure(&heaptap_statistics::sampled_objects, 1);
  if (kept != nullptr) {
    pool.allocations += kept->ForgetTaken(size_class);
    constexpr uint32_t kMore = KeptBlocks::kMost / 2;
    for (uint32_t i = 0; i < kMore && slab->used < slab->capacity; i++) {
      Block* const more = TakeFrom(slab);
      Serials(slab)[BlockIndex(slab, more)] = observer::kEnded;
      if (kept->Keep(size_class, {slab, more})) continue;
      more->next = slab->local_free;
      slab->local_free = more;
      slab->used--;
      break;
    }
  }
  if (slab->used == slab->capacity) pool.slabs.Remove(slab);
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

// REQUIRES: the pool's lock is held.
[[gnu::always_inline]] inline void ReturnLocked(SampledPool& pool, Slab* slab, Block* block) {
  HEAPTAP_ASSERT(pool.mutex.IsMine());
  HEAPTAP_ASSERT(Serials(slab)[BlockIndex(slab, block)] == observer::kEnded);
  block->next = slab->local_free;
  slab->local_free = block;
  slab->used--;
  if (!slab->queued) pool.slabs.PushFront(slab);
  if (slab->used != 0 || (slab->next == nullptr && slab->previous == nullptr)) return;
  pool.slabs.Remove(slab);
  ReleaseUnits(slab);
}

[[gnu::always_inline]] inline void Return(Slab* slab, Block* block) {
  SampledPool& pool = PoolOf(slab);
  AddToFigure(&heaptap_statistics::sampled_objects, -1);
  MutexLock lock(pool.mutex);
  ReturnLocked(pool, slab, block);
}

// --- kept blocks ---

// Threads keep blocks of this arena only.
constexpr ArenaIndex kKeptArena = 0;

// How often its blocks were discarded: blocks that were kept before belong to no slab any more.
constinit std::atomic<uint64_t> discards;

[[gnu::always_inline]] inline void NoteDiscards(counting::ThreadBlocks& blocks) {
  const uint64_t now = discards.load(std::memory_order_relaxed);
  if (HEAPTAP_LIKELY(blocks.discards == now)) return;
  blocks.kept.Drop();
  blocks.discards = now;
}

// Tells the figure of live blocks of changes now and then.
[[gnu::always_inline]] inline void ChangeLive(counting::ThreadBlocks& blocks, int64_t change) {
  constexpr int64_t kMostUntold = 32;
  counting::AddAtOnce(blocks.live_change, static_cast<uint64_t>(change));
  const auto untold = static_cast<int64_t>(blocks.live_change);
  if (HEAPTAP_LIKELY(untold < kMostUntold && untold > -kMostUntold)) return;
  counting::AddAtOnce(blocks.live_change, static_cast<uint64_t>(-untold));
  AddToFigure(&heaptap_statistics::sampled_objects, untold);
}

// nullptr: the thread keeps no block of the class.
[[gnu::always_inline]] inline Block* TakeKept(counting::ThreadBlocks& blocks, unsigned size_class, size_t requested,
                                              uint64_t serial) {
  NoteDiscards(blocks);
  KeptBlocks::Entry entry;
  if (!blocks.kept.Take(size_class, &entry)) return nullptr;
  Begin(entry.slab, entry.block, requested, serial);
  ChangeLive(blocks, 1);
  return entry.block;
}

[[gnu::cold, gnu::noinline]] void GiveBack(counting::ThreadBlocks& blocks, unsigned size_class, SampledPool& pool,
                                           uint32_t most) {
  KeptBlocks::Entry entries[KeptBlocks::kMost];
  const uint32_t number = blocks.kept.TakeBack(size_class, most, entries);
  MutexLock lock(pool.mutex);
  pool.allocations += blocks.kept.ForgetTaken(size_class);
  for (uint32_t i = 0; i < number; i++) ReturnLocked(pool, entries[i].slab, entries[i].block);
}

// False: the block goes back to its slab.
[[gnu::always_inline]] inline bool KeepForThread(Slab* slab, Block* block) {
  counting::ThreadBlocks* const blocks = counting::BlocksOfThread();
  if (blocks == nullptr || slab->arena != kKeptArena || !areas::MayCount()) return false;
  NoteDiscards(*blocks);
  const unsigned size_class = slab->size_class;
  if (HEAPTAP_UNLIKELY(!blocks->kept.Keep(size_class, {slab, block}))) {
    if (KeptBlocks::MostOf(size_class) == 0) return false;
    GiveBack(*blocks, size_class, PoolOf(slab), KeptBlocks::kMost / 2);
    if (!blocks->kept.Keep(size_class, {slab, block})) return false;
  }
  ChangeLive(*blocks, -1);
  return true;
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
  return Take(arena, size_class, requested, serial, nullptr);
}

observer::Sample observer::SampleOf(const Slab* slab, const Block* block) { return Read(slab, block); }

bool observer::EndSample(const Slab* slab, const Block* block) { return End(slab, block); }

void observer::ReturnBlock(Slab* slab, Block* block) { Return(slab, block); }

namespace {

// AllocateBlock in a process that has areas. `frame`: that of AllocateBlock. Inlined: one frame more of the allocator
// would take the place of one of the program in the inner frames of a deep stack.
[[gnu::always_inline]] inline void* AllocateByKnowing(Arena& arena, unsigned size_class, size_t requested,
                                                      uint64_t weight, uint64_t frame) {
  const size_t usable = kClassSize[size_class];
  // Counts have no weights.
  const uint32_t known = weight == usable ? counting::Find(frame) : 0;
  if (HEAPTAP_UNLIKELY(known == 0 || counting::is_verifying)) {
    const uint64_t serial = NewSerial();
    Block* const block = Take(arena, size_class, requested, serial, nullptr);
    if (block == nullptr) return nullptr;
    ReportAllocated(block, {usable, requested, serial}, weight, frame);
    if (HEAPTAP_UNLIKELY(known != 0)) counting::Verify(known, serial);
    return block;
  }
  const uint64_t serial = counting::SerialOf(known);
  counting::ThreadBlocks* const blocks =
      arena.index == kKeptArena && KeptBlocks::MostOf(size_class) != 0 ? counting::BlocksOfThread() : nullptr;
  Block* block = blocks != nullptr ? TakeKept(*blocks, size_class, requested, serial) : nullptr;
  if (block == nullptr) {
    block = Take(arena, size_class, requested, serial, blocks != nullptr ? &blocks->kept : nullptr);
    if (block == nullptr) return nullptr;
  }
  ReportCounted(block, {usable, requested, serial}, known);
  return block;
}

[[gnu::noinline]] void FreeCounted(Slab* slab, Block* block, const observer::Sample& sample) {
  ReportFreed(block, sample);
  if (!KeepForThread(slab, block)) Return(slab, block);
}

}  // namespace

void* observer::AllocateBlock(Arena& arena, unsigned size_class, size_t requested, uint64_t weight) {
  if (HEAPTAP_UNLIKELY(areas::HasAny())) {
    const auto frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    return AllocateByKnowing(arena, size_class, requested, weight, frame);
  }
  const uint64_t serial = NewSerial();
  Block* block = Take(arena, size_class, requested, serial, nullptr);
  if (block != nullptr) ReportAllocated(block, {kClassSize[size_class], requested, serial}, weight, 0);
  return block;
}

void observer::FreeBlock(Slab* slab, Block* block) {
  const Sample sample = Read(slab, block);
  if (!End(slab, block)) return;
  if (HEAPTAP_UNLIKELY(counting::IsCounted(sample.serial))) return FreeCounted(slab, block, sample);
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
  // Also those that this thread has kept just now.
  if (arena.index == kKeptArena) discards.fetch_add(1, std::memory_order_relaxed);
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

void ReturnKeptBlocks() {
  counting::ThreadBlocks* const of_thread = counting::BlocksOfThread();
  if (of_thread == nullptr) return;
  counting::ThreadBlocks& blocks = *of_thread;
  NoteDiscards(blocks);
  ForEachArena([&](Arena& arena) {
    if (arena.index != kKeptArena) return;
    for (unsigned c = 0; c < kSmallClasses; c++) GiveBack(blocks, c, arena.pools[c], KeptBlocks::kMost);
  });
  AddToFigure(&heaptap_statistics::sampled_objects, static_cast<int64_t>(blocks.live_change));
  blocks.live_change = 0;
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
