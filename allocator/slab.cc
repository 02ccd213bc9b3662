// SPDX-License-Identifier: Apache-2.0
#include "slab.h"

#include "units.h"

namespace heaptap {

namespace {

constinit std::atomic<uint64_t> slabs_made[kSmallClasses];

}  // namespace

uint64_t SlabsMade(unsigned size_class) { return slabs_made[size_class].load(std::memory_order_relaxed); }

Slab* NewSlab(unsigned size_class, uintptr_t owner) {
  Slab* slab = AllocateUnits(ShiftOf(size_class), 1, 1);
  if (slab == nullptr) return nullptr;
  slab->local_free = nullptr;
  slab->used = 0;
  slab->used_settled = 0;
  slab->carved = 0;
  slab->capacity = kSlabCapacity[size_class];
  slab->size_class = static_cast<uint8_t>(size_class);
  slab->size = kClassSize[size_class];
  slab->wake_pending = false;
  slab->remote_free.store(0, std::memory_order_relaxed);
  slab->owner.store(owner, std::memory_order_relaxed);
  slabs_made[size_class].fetch_add(1, std::memory_order_relaxed);
  return slab;
}

char* Carve(Slab* slab, uint32_t count) {
  HEAPTAP_ASSERT(count >= 1 && count <= slab->capacity - slab->carved);
  char* first = SlabMemory(slab) + slab->carved * slab->size;
  slab->carved += count;
  slab->used += count;
  return first;
}

void SlabList::PushFront(Slab* slab) {
  slab->previous = nullptr;
  slab->next = first_;
  (first_ != nullptr ? first_->previous : last_) = slab;
  first_ = slab;
  slab->queued = true;
}

void SlabList::PushBack(Slab* slab) {
  slab->next = nullptr;
  slab->previous = last_;
  (last_ != nullptr ? last_->next : first_) = slab;
  last_ = slab;
  slab->queued = true;
}

void SlabList::Remove(Slab* slab) {
  (slab->previous != nullptr ? slab->previous->next : first_) = slab->next;
  (slab->next != nullptr ? slab->next->previous : last_) = slab->previous;
  slab->queued = false;
}

}  // namespace heaptap
