// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/check.h"
#include "allocator/core/heap.h"
#include "allocator/core/options.h"

#ifdef HEAPTAP_DEBUG
namespace heaptap {
namespace {

constexpr size_t kMostBlocks = (size_t{1} << kShortShift) / 8;
static_assert(kMostBlocks >= (size_t{1} << kLongShift) / kShortSlabMaximum);

// The free blocks of a slab, each of which is in one state.
class FreeBlocks {
 public:
  explicit FreeBlocks(const Slab* slab)
      : slab_(slab), memory_(SlabMemory(slab)), size_(static_cast<uint32_t>(slab->size)) {
    for (size_t i = 0; i <= slab->capacity / 64; i++) seen_[i] = 0;
  }

  void Add(const void* block) {
    const size_t offset = static_cast<size_t>(static_cast<const char*>(block) - memory_);
    CheckLess("a free block lies among the carved: offset < carved * size", slab_, offset,
              size_t{slab_->carved} * size_);
    const uint32_t index = static_cast<uint32_t>(offset) / size_;
    CheckEqual("a free block is aligned: offset % size == 0", slab_, offset - size_t{index} * size_, 0);
    const uint64_t bit = uint64_t{1} << index % 64;
    CheckThat("a free block is in one state, and once on its list", slab_, (seen_[index / 64] & bit) == 0);
    seen_[index / 64] |= bit;
  }

  uint32_t AddList(const Block* block) {
    uint32_t length = 0;
    for (; block != nullptr; block = block->next, length++) Add(block);
    return length;
  }

 private:
  const Slab* slab_;
  const char* memory_;
  uint32_t size_;
  uint64_t seen_[kMostBlocks / 64 + 1];
};

// Adds the ready blocks of the heap that lie in the slab. Returns their number.
uint32_t AddReady(const Heap* heap, const Slab* slab, FreeBlocks* blocks) {
  const unsigned c = slab->size_class;
  uint32_t count = 0;
  for (const Block* list : {heap->ready[c], heap->classes[c].rest.first}) {
    if (list != nullptr && SlabOfBlock(list) == slab) count += blocks->AddList(list);
  }
  if (heap->ready[c] != nullptr) return count;
  if (heap->fresh[c] == heap->fresh_end[c] || SlabOfBlock(heap->fresh[c]) != slab) return count;
  CheckEqual("fresh_end == memory + carved * size", slab, reinterpret_cast<uintptr_t>(heap->fresh_end[c]),
             reinterpret_cast<uintptr_t>(SlabMemory(slab) + slab->carved * slab->size));
  for (const char* block = heap->fresh[c]; block < heap->fresh_end[c]; block += kClassSize[c], count++) {
    blocks->Add(block);
  }
  return count;
}

uint32_t AddReturned(const Slab* slab, FreeBlocks* blocks) {
  uint32_t count = 0;
  for (uint32_t i = 0; slab->returned != 0 && i < slab->carved; i++) {
    if (!IsReturned(slab, i)) continue;
    blocks->Add(SlabMemory(slab) + i * slab->size);
    count++;
  }
  CheckEqual("returned == blocks with a returned page", slab, count, slab->returned);
  return count;
}

// Where memory is limited, a class of long slabs may have short ones too.
bool IsUnitOf(const Slab* slab, unsigned size_class) {
  return IsUnit(slab) && (ChunkKind(slab) == ShiftOf(size_class) || ChunkKind(slab) == kShortShift);
}

void CheckShape(const Slab* slab, bool is_sampled) {
  const unsigned c = slab->size_class;
  CheckLess("size_class < kSmallClasses", slab, c, kSmallClasses);
  CheckThat("the class's units, or short ones", slab, IsUnitOf(slab, c));
  CheckEqual("size == kClassSize[size_class]", slab, slab->size, kClassSize[c]);
  if (is_sampled) {
    // The notes on samples take some of the bytes (sampled_blocks.cc).
    CheckAtMost("capacity <= bytes / size", slab, slab->capacity, SlabBytes(slab) / slab->size);
  } else {
    CheckEqual("capacity == bytes / size", slab, slab->capacity, SlabBytes(slab) / slab->size);
  }
  CheckEqual("units of a slab == 1", slab, slab->units, 1);
  CheckAtMost("carved <= capacity", slab, slab->carved, slab->capacity);
  CheckAtMost("used <= carved", slab, slab->used, slab->carved);
}

uint32_t CheckLocalFree(const Slab* slab, FreeBlocks* blocks) {
  const uint32_t length = blocks->AddList(slab->local_free);
  const uint32_t expected = slab->carved - slab->used;
  const uint32_t difference = length < expected ? expected - length : length - expected;
  if (difference > check_slack.load(std::memory_order_relaxed))
    CheckEqual("|local_free| == carved - used", slab, length, expected);
  return length;
}

size_t CheckSampled(const Slab* slab) {
  CheckShape(slab, true);
  FreeBlocks blocks(slab);
  CheckEqual("of sampled blocks: remote_free == 0", slab, slab->remote_free.load(std::memory_order_relaxed), 0);
  CheckEqual("of sampled blocks: queued == (used < capacity)", slab, slab->queued, slab->used < slab->capacity);
  return CheckLocalFree(slab, &blocks);
}

}  // namespace

size_t CheckSlab(const Slab* slab) {
  const uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == kSampledOwner) return CheckSampled(slab);
  const Heap* heap = reinterpret_cast<const Heap*>(owner & ~(kFullBit | kSlowBit));
  const bool is_full = (owner & kFullBit) != 0;
  CheckShape(slab, false);
  CheckEqual("owner & kSlowBit == core_options.owner_bits", slab, owner & kSlowBit, core_options.owner_bits);
  CheckEqual("queued == not full", slab, slab->queued, !is_full);
  if (is_full) CheckEqual("of a full slab: used == capacity", slab, slab->used, slab->capacity);
  if (is_full) CheckEqual("of a full slab: returned == 0", slab, slab->returned, 0);
  CheckAtMost("used <= used_settled", slab, slab->used, slab->used_settled);
  CheckAtMost("used_settled <= carved", slab, slab->used_settled, slab->carved);

  // Acquire: the links of the blocks on the list.
  const uintptr_t remote = slab->remote_free.load(std::memory_order_acquire);
  if ((remote & kNotifyBit) != 0) {
    CheckThat("kNotifyBit => full", slab, is_full);
    CheckThat("kNotifyBit => no wake is on its way", slab, !slab->wake_pending);
    CheckEqual("kNotifyBit => no block is remotely freed", slab, remote, kNotifyBit);
  }
  FreeBlocks blocks(slab);
  const uint32_t local = CheckLocalFree(slab, &blocks);
  const uint32_t remotely = blocks.AddList(RemoteBlocks(remote));
  CheckEqual("|remote_free| == its count", slab, remotely, RemoteCount(remote));
  const uint32_t ready = AddReady(heap, slab, &blocks);
  const uint32_t returned = AddReturned(slab, &blocks);
  CheckAtMost("ready + |remote_free| + returned <= used", slab, ready + remotely + returned, slab->used);
  return size_t{local} + remotely + ready + returned;
}

void CheckQueue(const SlabList& queue, unsigned size_class, uintptr_t owner, Checked* checked) {
  const Slab* previous = nullptr;
  for (const Slab* slab = queue.first(); slab != nullptr; previous = slab, slab = slab->next) {
    // This check comes before anything of the slab is read.
    CheckThat("a slab on the queue is one, with the class's units or short ones", slab, IsUnitOf(slab, size_class));
    CheckEqual("a slab on the queue is one: address % sizeof(Slab) == 0", slab,
               reinterpret_cast<uintptr_t>(slab) % sizeof(Slab), 0);
    // A list that leads back into itself has a slab with two predecessors.
    CheckEqual("next->previous == this", slab, reinterpret_cast<uintptr_t>(slab->previous),
               reinterpret_cast<uintptr_t>(previous));
    CheckEqual("size_class == class of the queue", slab, slab->size_class, size_class);
    CheckEqual("owner of a queued slab == owner of the queue", slab, slab->owner.load(std::memory_order_relaxed),
               owner);
    checked->slabs++;
    checked->blocks += CheckSlab(slab);
  }
  if (previous == nullptr) return;
  CheckEqual("last slab of a queue == last()", previous, reinterpret_cast<uintptr_t>(previous),
             reinterpret_cast<uintptr_t>(queue.last()));
}

}  // namespace heaptap
#endif
