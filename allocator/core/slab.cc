// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/slab.h"

namespace heaptap {

char* Carve(Slab* slab, uint32_t count) {
  HEAPTAP_ASSERT(count >= 1 && count <= slab->capacity - slab->carved);
  char* first = SlabMemory(slab) + slab->carved * slab->size;
  slab->carved += count;
  slab->used += count;
  return first;
}

bool IsBlock(const Slab* slab, const void* pointer) {
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  // Unit 0 holds the chunk's header and has no owner word.
  if (UnitIndex(slab) == 0 || owner == kNobody) return false;
  size_t offset = static_cast<size_t>(static_cast<const char*>(pointer) - SlabMemory(slab));
  if (owner == kRunOwner) return offset == 0;
  // A 32-bit division takes half the time of a 64-bit one.
  uint32_t size = static_cast<uint32_t>(slab->size);
  return static_cast<uint32_t>(offset) % size == 0 && static_cast<uint32_t>(offset) / size < slab->capacity;
}

bool IsFreeBlock(const Slab* slab, const Block* block) {
  if (reinterpret_cast<const char*>(block) >= SlabMemory(slab) + slab->carved * slab->size) return true;
  const Block* free = slab->local_free;
  while (free != nullptr && free != block) free = free->next;
  return free != nullptr;
}

uint32_t CutCycle(Block* first) {
  // Floyd's algorithm: the two pointers meet inside the cycle. From there to the beginning of the cycle takes as many
  // steps as from the beginning of the list.
  Block* slow = first;
  Block* fast = first;
  do {
    slow = slow->next;
    fast = fast->next->next;
  } while (slow != fast);
  uint32_t count = 1;
  for (slow = first; slow != fast; slow = slow->next, fast = fast->next) count++;
  for (; fast->next != slow; fast = fast->next) count++;
  fast->next = nullptr;
  return count;
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
