// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/sparse_slab.h"

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/units.h"

namespace heaptap {
namespace {

constexpr uint32_t kMostBlocks = (uint32_t{1} << kShortShift) / kLeastSparseSize;
static_assert(kMostBlocks >= (size_t{1} << kLongShift) / kShortSlabMaximum);
constexpr uint32_t kMostPages = (uint32_t{1} << kLongShift) / kPageSize;

template <uint32_t kBits>
class Bits {
 public:
  bool Has(uint32_t index) const { return (words_[index / 64] >> index % 64 & 1) != 0; }
  void Add(uint32_t index) { words_[index / 64] |= uint64_t{1} << index % 64; }

 private:
  uint64_t words_[kBits / 64] = {};
};

uint32_t SizeOf(const Slab* slab) { return static_cast<uint32_t>(slab->size); }
Block* BlockAt(const Slab* slab, uint32_t index) {
  return reinterpret_cast<Block*>(SlabMemory(slab) + size_t{index} * slab->size);
}

// The first and the last of the blocks that touch a page.
struct Range {
  uint32_t first;
  uint32_t last;
};
Range BlocksOf(uint32_t page, uint32_t size) {
  const uint32_t offset = page * uint32_t{kPageSize};
  return {offset / size, (offset + uint32_t{kPageSize} - 1) / size};
}

uint32_t WholePages(const Slab* slab) { return slab->carved * SizeOf(slab) / uint32_t{kPageSize}; }

// Finds the free blocks, including returned ones. False: local_free is damaged, as after a double free.
bool FindFreeBlocks(const Slab* slab, Bits<kMostBlocks>* free) {
  const uint32_t size = SizeOf(slab);
  const uintptr_t memory = reinterpret_cast<uintptr_t>(SlabMemory(slab));
  uint32_t left = slab->carved - slab->used;
  for (const Block* block = slab->local_free; block != nullptr; block = block->next) {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(block) - memory;
    if (offset >= size_t{slab->carved} * size || left-- == 0) return false;
    const uint32_t index = static_cast<uint32_t>(offset) / size;
    if (index * size != offset || free->Has(index)) return false;
    free->Add(index);
  }
  for (uint32_t index = 0; slab->returned != 0 && index < slab->carved; index++) {
    if (IsReturned(slab, index)) free->Add(index);
  }
  return left == 0;
}

bool IsFreePage(const Slab* slab, uint32_t page, const Bits<kMostBlocks>& free) {
  if (IsPageReturned(slab, page)) return false;
  const Range blocks = BlocksOf(page, SizeOf(slab));
  for (uint32_t index = blocks.first; index <= blocks.last && index < slab->carved; index++) {
    if (!free.Has(index)) return false;
  }
  return true;
}

// Puts the free blocks that are not returned on local_free, in the order of their addresses.
void MakeLocalFree(Slab* slab, const Bits<kMostBlocks>& free) {
  const uint32_t returned_before = slab->returned;
  slab->local_free = nullptr;
  slab->returned = 0;
  for (uint32_t index = slab->carved; index-- != 0;) {
    if (!free.Has(index)) continue;
    if (IsReturned(slab, index)) {
      slab->returned++;
      continue;
    }
    Block* block = BlockAt(slab, index);
    block->next = slab->local_free;
    slab->local_free = block;
  }
  slab->used += slab->returned - returned_before;
  slab->used_settled += slab->returned - returned_before;
}

}  // namespace

bool MayHaveFreePages(const Slab* slab) {
  if (slab->carved == 0) return false;
  constexpr uint64_t kOne = 1 << 16;
  const uint32_t size = SizeOf(slab);
  const uint64_t share = (slab->carved - slab->used) * kOne / slab->carved;
  const Range blocks = BlocksOf(1, size);
  uint64_t pages = WholePages(slab) * kOne;
  for (uint32_t i = blocks.first; i <= blocks.last && pages >= kOne; i++) pages = pages * share / kOne;
  return pages >= kOne;
}

size_t ReturnFreePages(Slab* slab) {
  HEAPTAP_ASSERT(slab->size >= kLeastSparseSize && slab->used == slab->used_settled);
  Bits<kMostBlocks> free;
  if (!FindFreeBlocks(slab, &free)) return 0;
  size_t pages_returned = 0;
  const uint32_t pages = WholePages(slab);
  for (uint32_t page = 0; page < pages; page++) {
    uint32_t count = 0;
    while (page + count < pages && IsFreePage(slab, page + count, free)) count++;
    if (count == 0) continue;
    // Locked memory (mlockall) cannot be discarded.
    if (!ReturnPages(slab, page, count)) break;
    pages_returned += count;
    page += count;
  }
  if (pages_returned == 0) return 0;
  slab->fresh = false;
  MakeLocalFree(slab, free);
  return pages_returned * kPageSize;
}

void TakeBack(Slab* slab, uint32_t least) {
  const uint32_t size = SizeOf(slab);
  uint32_t taken = 0;
  for (uint32_t page = 0; page < kMostPages && taken < least && slab->returned != 0; page++) {
    if (!IsPageReturned(slab, page)) continue;
    TakePage(slab, page);
    const Range blocks = BlocksOf(page, size);
    for (uint32_t index = blocks.first; index <= blocks.last && index < slab->carved; index++) {
      if (IsReturned(slab, index)) continue;
      Block* block = BlockAt(slab, index);
      block->next = slab->local_free;
      slab->local_free = block;
      slab->returned--;
      slab->used--;
      slab->used_settled--;
      taken++;
    }
  }
}

void RenewSlab(Slab* slab) {
  HEAPTAP_ASSERT(IsEmptied(slab) && slab->used == slab->used_settled);
  TakeAllPages(slab);
  const uint32_t used_bytes = slab->carved * SizeOf(slab);
  if (used_bytes > slab->touched) slab->touched = used_bytes;
  slab->local_free = nullptr;
  slab->carved = 0;
  slab->used = 0;
  slab->used_settled = 0;
  slab->returned = 0;
  slab->searched_free = 0;
  slab->seen_free = 0;
  slab->fresh = false;
  slab->distant = false;
}

}  // namespace heaptap
