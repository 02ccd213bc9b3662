// SPDX-License-Identifier: Apache-2.0
//
// The words of the allocator, and the shape of its memory.
//
//   chunk   32 MiB of address space, aligned to its size, cut into units of one size. Unit 0 holds the chunk's header
//           and the descriptors of all other units. (Where address space is short a chunk may end early.)
//   slab    one unit, cut into blocks of one size class; or a run: several units that are one large block.
//   block   what malloc returns. Block i of a slab lies at i * block size from the slab's beginning.
//   heap    the slabs of one thread, and for each class a few blocks ready to be handed out (heap.h).
//   huge    a block with a mapping of its own, aligned to the chunk size (large.h).
//
// A block of a slab is in exactly one of these states:
//
//   untouched    never handed out: carved <= index < capacity
//   ready        on its heap's list for the class, or one of its fresh blocks, which were never handed out
//                or written to
//   live         the program has it
//   local_free   freed by the owning thread
//   remote_free  freed by another thread, not yet collected
//
//   carved == ready + live + |local_free| + |remote_free|
//   used   == ready + live + |remote_free|
//   used   == carved - |local_free|
//
// free never puts a block on a heap's ready list: ready lists grow only as far as the countdown allows (countdown.h).
//
// Thread safety: the first line of a descriptor belongs to the slab's owner alone, but for the atomic owner word, which
// anybody who holds a live block may read. The second line is where other threads write.
#ifndef HEAPTAP_ALLOCATOR_CORE_SLAB_H_
#define HEAPTAP_ALLOCATOR_CORE_SLAB_H_

#include <stddef.h>
#include <stdint.h>

#include <array>
#include <atomic>

#include "allocator/core/size_class.h"

#ifdef HEAPTAP_DEBUG
#define HEAPTAP_ASSERT(condition) ((condition) ? (void)0 : __builtin_trap())
#else
#define HEAPTAP_ASSERT(condition) ((void)0)
#endif

#define HEAPTAP_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HEAPTAP_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

namespace heaptap {

inline constexpr unsigned kChunkShift = 25;
inline constexpr size_t kChunkSize = size_t{1} << kChunkShift;
inline constexpr unsigned kAddressBits = 47;

// Units come in two sizes: small blocks share short slabs, medium ones long slabs, so that each slab has enough.
inline constexpr unsigned kShortShift = 16;
inline constexpr unsigned kLongShift = 19;
inline constexpr size_t kShortSlabMaximum = 2048;  // the largest block of a short slab

// Values of the owner word. Any other value is the address of the owning Heap, with kFullBit and kSlowBit or without.
inline constexpr uintptr_t kNobody = 0;        // a free unit, or one inside a run
inline constexpr uintptr_t kFullBit = 1;       // the heap expects no more of this slab until a block is freed
inline constexpr uintptr_t kSampledOwner = 2;  // a slab of sampled blocks (sampled_blocks.h)
inline constexpr uintptr_t kRunOwner = 4;      // a run
inline constexpr uintptr_t kSlowBit = 8;       // with a heap: every free takes the slow path (options.h)

struct Block {
  Block* next;
};

// Bit of Slab::remote_free: the slab is full and nobody has told its heap yet that a block came back.
inline constexpr uintptr_t kNotifyBit = 1;

// The descriptor of a unit. Zero-initialised state is valid: a free unit that has never been used.
struct alignas(128) Slab {
  std::atomic<uintptr_t> owner;
  Block* local_free;   // blocks freed by the owner
  uint32_t used;       // blocks ready, live or remotely freed
  uint32_t carved;     // blocks that were ever ready
  uint32_t capacity;   // blocks in the slab
  uint8_t size_class;  // of its blocks
  bool fresh;          // no block has been handed out a second time, and the unit was zero: blocks of it read as zero
  bool wake_pending;   // some thread has taken the notify bit, and its wake has not been seen by the owner
  bool queued;         // on its heap's or pool's list of slabs with free blocks
  size_t size;         // of its blocks; usable size of a run
  Slab* next;          // the list of slabs with free blocks
  Slab* previous;
  uint32_t used_settled;  // `used` as of the last Heap::Settle: the difference are local frees that nobody has counted

  alignas(64) std::atomic<uintptr_t> remote_free;  // Block*, a stack, and kNotifyBit
  Slab* wake_next;                                 // the heap's list of wakes
  uint32_t units;                                  // 1, or the units of a run
  bool sampled;                                    // a run that is a sample
  size_t requested;                                // of a run: what the program asked for
  bool dirty;                                      // a free unit that may hold old contents
  uint32_t touched;                                // bytes from the unit's beginning that earlier tenants have used
  uint64_t free_since;                             // CoarseMilliseconds() when a dirty unit became free
};
static_assert(sizeof(Slab) == 128);

// The header of a chunk, in the place of unit 0's descriptor.
struct Chunk {
  std::atomic<Chunk*> next;  // all chunks of the unit size
  uint32_t shift;            // log2 of the unit size
  uint32_t units;            // with unit 0
  uint64_t free_bits[8];     // one for each unit
  uint32_t longest;          // the most free units in a row
  uint32_t reach;            // no unit from this one on has ever been in use, and no descriptor been touched
  Chunk* next_of_room;       // chunks of like `longest` (chunks.h)
  Chunk* previous_of_room;
  // No free unit has been dirty since before this time, in CoarseMilliseconds(); kNeverDirty: none is dirty.
  std::atomic<uint64_t> dirty_since;
};
inline constexpr uint64_t kNeverDirty = UINT64_MAX;
static_assert(sizeof(Chunk) <= sizeof(Slab));
static_assert((kChunkSize >> kShortShift) == 8 * 64, "free_bits has a bit for each unit");
static_assert((kChunkSize >> kShortShift) * sizeof(Slab) <= size_t{1} << kShortShift, "descriptors fit in unit 0");

// What lies at each 32 MiB of the address space: one of these, or the unit shift of a chunk.
inline constexpr uint8_t kForeign = 0;    // not ours; NULL too
inline constexpr uint8_t kHuge = 1;       // a huge block begins there
inline constexpr uint8_t kFreedHuge = 2;  // one has begun there, and nothing of ours has come since
inline constexpr size_t kChunkTableSize = size_t{1} << (kAddressBits - kChunkShift);
extern std::atomic<uint8_t> chunk_table[kChunkTableSize];

// The kind at an address, of which only the bits below kAddressBits count. No block has the others; the slow paths of
// free look at them.
inline uint8_t ChunkKindBelow(const void* pointer) {
  return chunk_table[reinterpret_cast<uintptr_t>(pointer) >> kChunkShift & (kChunkTableSize - 1)].load(
      std::memory_order_relaxed);
}

inline uint8_t ChunkKind(const void* pointer) {
  bool has_more_bits = reinterpret_cast<uintptr_t>(pointer) >> kAddressBits != 0;
  return has_more_bits ? kForeign : ChunkKindBelow(pointer);
}

// The descriptor of the unit that holds `pointer`. REQUIRES: `shift` == ChunkKind(pointer) > kFreedHuge.
inline Slab* SlabOf(const void* pointer, unsigned shift) {
  uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  uintptr_t unit = (address & (kChunkSize - 1)) >> shift;
  uintptr_t chunk = (address >> kChunkShift & (kChunkTableSize - 1)) << kChunkShift;
  return reinterpret_cast<Slab*>(chunk + unit * sizeof(Slab));
}

inline Chunk* ChunkOf(const Slab* slab) {
  return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(slab) & ~(kChunkSize - 1));
}

inline size_t UnitIndex(const Slab* slab) {
  return (reinterpret_cast<uintptr_t>(slab) & (kChunkSize - 1)) / sizeof(Slab);
}

// The beginning of the memory that the descriptor describes.
inline char* SlabMemory(const Slab* slab) {
  Chunk* chunk = ChunkOf(slab);
  return reinterpret_cast<char*>(chunk) + (UnitIndex(slab) << chunk->shift);
}

// The unit shift of the slabs of a class.
constexpr unsigned ShiftOf(unsigned size_class) {
  return kClassSize[size_class] <= kShortSlabMaximum ? kShortShift : kLongShift;
}

inline constexpr std::array<uint32_t, kSmallClasses> kSlabCapacity = [] {
  std::array<uint32_t, kSmallClasses> capacity{};
  for (unsigned c = 0; c < kSmallClasses; c++) capacity[c] = (uint32_t{1} << ShiftOf(c)) / kClassSize[c];
  return capacity;
}();

// Takes `count` untouched blocks, one behind the other, and returns the first. REQUIRES: 1 <= count <= capacity -
// carved.
char* Carve(Slab* slab, uint32_t count);

// Whether a block of the slab, or the run, begins there; it may be free.
bool IsBlock(const Slab* slab, const void* pointer);

// Whether a block of the calling thread's slab is free. Takes time proportional to the number of such blocks.
bool IsFreeBlock(const Slab* slab, const Block* block);

// Whether a list of blocks comes back to its first block at once, as it does if that was freed twice.
inline bool IsShortCycle(const Block* first) {
  const Block* next = first->next;
  return next != nullptr && (next == first || next->next == first);
}

// Makes a list that leads back into itself end before it does. Returns how many blocks it has.
uint32_t CutCycle(Block* first);

// A doubly linked list of slabs. Zero-initialised state is valid: empty. Sets and clears Slab::queued.
class SlabList {
 public:
  Slab* first() const { return first_; }
  void PushFront(Slab* slab);
  void PushBack(Slab* slab);
  void Remove(Slab* slab);

 private:
  Slab* first_;
  Slab* last_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_SLAB_H_
