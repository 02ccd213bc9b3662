// SPDX-License-Identifier: Apache-2.0
#include "invalid_free.h"

#include <stdlib.h>

#include "large.h"
#include "process.h"
#include "statistics.h"
#include "system.h"
#include "units.h"

namespace heaptap {
namespace {

enum Kind { kOfAnother, kFreedBefore, kNoBeginning, kKinds };
constexpr const char* kWhat[kKinds] = {"which another allocator has made", "which is free already",
                                       "at which no block begins"};

void Refuse(const void* pointer, Kind kind) {
  static constinit std::atomic<bool> reported[kKinds];
  const bool aborts = ProcessConfiguration().abort_invalid_free;
  AddToFigure(&heaptap_statistics::foreign_frees, 1);
  if (reported[kind].exchange(true, std::memory_order_relaxed) && !aborts) return;
  constexpr char kDigits[] = "0123456789abcdef";
  char address[2 * sizeof(void*)];
  for (size_t i = 0; i < sizeof(address); i++) {
    address[i] = kDigits[reinterpret_cast<uintptr_t>(pointer) >> (4 * (sizeof(address) - 1 - i)) & 15];
  }
  Message message;
  message << "<heaptap>: " << (aborts ? "Invalid free of 0x" : "Ignored a free of 0x");
  message.Append(address, sizeof(address)) << ", " << kWhat[kind] << (aborts ? "\n" : " (said once)\n");
  message.Print();
  if (aborts) abort();
}

}  // namespace

bool IsBlock(const Slab* slab, const void* pointer) {
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  // Unit 0 has no owner word.
  if (UnitIndex(slab) == 0 || owner == kNobody) return false;
  size_t offset = static_cast<size_t>(static_cast<const char*>(pointer) - SlabMemory(slab));
  if (owner == kRunOwner) return offset == 0;
  // 32 bits: half as slow.
  uint32_t size = static_cast<uint32_t>(slab->size);
  return static_cast<uint32_t>(offset) % size == 0 && static_cast<uint32_t>(offset) / size < slab->capacity;
}

bool IsFreeBlock(const Slab* slab, const Block* block) {
  if (reinterpret_cast<const char*>(block) >= SlabMemory(slab) + slab->carved * slab->size) return true;
  const Block* free = slab->local_free;
  while (free != nullptr && free != block) free = free->next;
  return free != nullptr;
}

void RefuseFree(const void* pointer) {
  unsigned kind = ChunkKind(pointer);
  if (kind > kFreedHuge) {
    return Refuse(pointer, IsFreeUnit(SlabOf(pointer, kind)) ? kFreedBefore : kNoBeginning);
  }
  if (IsInsideHuge(pointer)) return Refuse(pointer, kNoBeginning);
  bool was_huge = kind == kFreedHuge && (reinterpret_cast<uintptr_t>(pointer) & (kChunkSize - 1)) == 0;
  Refuse(pointer, was_huge ? kFreedBefore : kOfAnother);
}

void RefuseSecondFree(const void* pointer) { Refuse(pointer, kFreedBefore); }

uint32_t CutCycle(Block* first) {
  // Floyd's: the two meet inside the cycle, as many steps before its beginning as the list is long up to there.
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

}  // namespace heaptap
