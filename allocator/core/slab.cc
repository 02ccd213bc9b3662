// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/slab.h"

#include <stddef.h>
#include <stdint.h>

#include <array>
#include <atomic>

namespace heaptap {
namespace {

// Division by a class size as a multiplication, which takes a third of the time: offset / size is offset * kReciprocal
// >> kReciprocalShift. Exact for offsets in a slab: kReciprocal is too large by at most 1, so the product is too large
// by at most the offset, and offset * size < 2^kReciprocalShift.
constexpr unsigned kReciprocalShift = 40;
static_assert(kLongShift + 16 < kReciprocalShift && kSmallMaximum < size_t{1} << 16);
constexpr std::array<uint64_t, kSmallClasses> kReciprocal = [] {
  std::array<uint64_t, kSmallClasses> reciprocal{};
  for (unsigned c = 0; c < kSmallClasses; c++) reciprocal[c] = (uint64_t{1} << kReciprocalShift) / kClassSize[c] + 1;
  return reciprocal;
}();

}  // namespace

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
  size_t index = offset * kReciprocal[slab->size_class] >> kReciprocalShift;
  return index * slab->size == offset && index < slab->capacity;
}

bool IsReturned(const Slab* slab, uint32_t index) {
  const auto size = static_cast<uint32_t>(slab->size);
  const uint32_t last = (index * size + size - 1) / uint32_t{kPageSize};
  for (uint32_t page = index * size / uint32_t{kPageSize}; page <= last; page++) {
    if (IsPageReturned(slab, page)) return true;
  }
  return false;
}

bool IsFreeBlock(const Slab* slab, const Block* block) {
  if (reinterpret_cast<const char*>(block) >= SlabMemory(slab) + slab->carved * slab->size) return true;
  const size_t offset = static_cast<size_t>(reinterpret_cast<const char*>(block) - SlabMemory(slab));
  if (slab->returned != 0 && IsReturned(slab, static_cast<uint32_t>(offset / slab->size))) return true;
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
  count_++;
  slab->queued = true;
}

void SlabList::PushBack(Slab* slab) {
  slab->next = nullptr;
  slab->previous = last_;
  (last_ != nullptr ? last_->next : first_) = slab;
  last_ = slab;
  count_++;
  slab->queued = true;
}

void SlabList::Remove(Slab* slab) {
  (slab->previous != nullptr ? slab->previous->next : first_) = slab->next;
  (slab->next != nullptr ? slab->next->previous : last_) = slab->previous;
  count_--;
  slab->queued = false;
}

}  // namespace heaptap
