// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/refill.h"

#include <stddef.h>
#include <stdint.h>

#include <array>

#include "allocator/core/units.h"

namespace heaptap {
namespace {

// The first batch of untouched blocks has about this many bytes, so that a rarely used class takes little memory.
constexpr uint32_t kCarveBytes = 4096;
// Where that is fewer blocks than this, later batches grow with the use of the slab, up to this many blocks.
constexpr uint32_t kCarveBlocks = 16;

constexpr std::array<uint32_t, kSmallClasses> kFirstBatch = [] {
  std::array<uint32_t, kSmallClasses> batch{};
  for (unsigned c = 0; c < kSmallClasses; c++) batch[c] = kClassSize[c] < kCarveBytes ? kCarveBytes / kClassSize[c] : 1;
  return batch;
}();

// A wake touches memory that is in another processor's cache. A refill processes at most this many, so that no call of
// malloc waits for all of them.
constexpr int kWakesPerRefill = 2;

uint32_t Minimum(uint64_t a, uint32_t b) { return a < b ? static_cast<uint32_t>(a) : b; }

// The fewest blocks of a batch that is not poor.
uint32_t GoodBatch(const Slab* slab) { return Minimum(slab->capacity / kPoorShare, kPoorBlocks); }

uint32_t CarveCount(const Slab* slab, uint64_t limit) {
  uint32_t count = kFirstBatch[slab->size_class];
  if (count < kCarveBlocks) count += Minimum(slab->carved / 2, kCarveBlocks - count);
  return Minimum(limit, Minimum(slab->capacity - slab->carved, count));
}

}  // namespace

void Heap::ProcessWakes() {
  for (int i = 0; i < kWakesPerRefill; i++) {
    if (!ProcessWake()) break;
  }
}

// A slab of the class, the first of its queue, with blocks for a batch, which may be poor. nullptr: out of memory.
Slab* Heap::FindSlab(unsigned size_class) {
  HeapClass& mine = classes[size_class];
  SlabList& slabs = mine.queue;
  Slab* slab;
  bool poor = false;
  bool has_passed_over = false;
  while ((slab = slabs.first()) != nullptr || ProcessWake()) {
    if (slab == nullptr) continue;
    poor = IsPoor(slab);
    if (poor) {
      CollectRemote(slab);
      poor = IsPoor(slab);
    }
    if (!HasBlocks(slab) && slab->returned != 0) TakeBack(slab, GoodBatch(slab));
    if (HasBlocks(slab)) break;
    // A slab without blocks probably has some at its next turn, so one slab is passed over: becoming full and coming
    // back would take longer. Only one slab is passed over, so that a refill does not visit all slabs whose blocks all
    // live long.
    if (!has_passed_over && slab->next != nullptr) {
      has_passed_over = true;
      slabs.MoveFirstToBack();
      continue;
    }
    MarkFull(slab);
  }
  if (slab == nullptr || (poor && !HasUntouched(slab) && ++mine.poor_batches >= kPoorBatches)) {
    mine.poor_batches = 0;
    Slab* another = NewSlab(size_class, OwnerWord(), arena);
    if (another == nullptr) return slab;
    mine.counts.slabs_made.Add(1);
    // Before the slab becomes the first of its queue, because MakeUpFor rotates queues.
    if (another->fresh) MakeUpFor(SlabBytes(another), size_class);
    slabs.PushFront(another);
    return another;
  }
  if (!poor) CountGoodBatch(mine);
  return slab;
}

void* Heap::RefillRarely(unsigned size_class) {
  Slab* slab = FindSlab(size_class);
  if (slab == nullptr) return nullptr;
  // Where every call takes its slow path, blocks are handed out one by one.
  const bool one_by_one = core_options.owner_bits != 0;
  const bool recycles = slab->local_free != nullptr && !(IsPoor(slab) && HasUntouched(slab));
  if (recycles) {
    const uint32_t most = slab->distant ? kDistantBlocks : slab->capacity;
    return Recycle(size_class, slab, one_by_one ? 1 : most);
  }
  BeginTurn(size_class, slab);
  uint32_t count = CarveCount(slab, one_by_one ? 1 : countdown().Allowance(size_class));
  char* first = Carve(slab, count);
  fresh[size_class] = first + slab->size;
  fresh_end[size_class] = first + count * slab->size;
  countdown().HandOut(size_class, count);
  EndTurn(size_class, slab, count);
  return first;
}

}  // namespace heaptap
