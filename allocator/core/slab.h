// SPDX-License-Identifier: Apache-2.0
//
// The terms of the allocator, and the layout of its memory.
//
//   chunk   32 MiB of address space, aligned to its size, cut into units of one size. Unit 0 holds the chunk's header
//           and the descriptors of all other units. The first chunk is smaller, and so are others where memory is
//           limited.
//   slab    one unit, cut into blocks of one size class; or a run: several units that are one large block.
//   block   what malloc returns. Block i of a slab lies at i * block size from the slab's beginning.
//   heap    the slabs of one thread, and for each class a few blocks that are ready for malloc (heap.h).
//   huge    a block with its own mapping, aligned to the chunk size (large.h).
//
// A block of a slab is in exactly one of these states:
//
//   untouched    never made ready: carved <= index < capacity
//   ready        on its heap's list for the class; or in the rest of its batch (heap.h); or one of the heap's fresh
//                blocks, which malloc has never returned and nothing has written
//   live         in use by the program
//   local_free   freed by the owning thread
//   remote_free  freed by another thread, not yet collected
//   returned     freed, and a page of it has gone back to the system (sparse_slab.h)
//
//   carved == ready + live + |local_free| + |remote_free| + returned
//   used   == ready + live + |remote_free| + returned
//   used   == carved - |local_free|
//
// free never puts a block on a heap's ready list: ready lists grow only as far as the countdown allows (countdown.h).
//
// Thread safety: only the slab's owner uses the first cache line of a descriptor, except for the atomic owner word,
// which any thread with a live block of the slab may read. Other threads write to the second cache line.
#ifndef HEAPTAP_ALLOCATOR_CORE_SLAB_H_
#define HEAPTAP_ALLOCATOR_CORE_SLAB_H_

#include <stddef.h>
#include <stdint.h>

#include <array>
#include <atomic>

#include "allocator/core/size_class.h"
#include "allocator/platform/assert.h"
#include "allocator/platform/fence.h"

#define HEAPTAP_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HEAPTAP_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

namespace heaptap {

// The order of free's load of an owner word. It pairs with a borrower of the heap that has brought the slab back
// (Heap::MarkNotFull). An acquire load would cost one more instruction, so only builds with ThreadSanitizer have one;
// other builds have a fence after the load.
#ifdef __SANITIZE_THREAD__
inline constexpr std::memory_order kOwnerOrder = std::memory_order_acquire;
#else
inline constexpr std::memory_order kOwnerOrder = std::memory_order_relaxed;
#endif

inline constexpr unsigned kChunkShift = 25;
inline constexpr size_t kChunkSize = size_t{1} << kChunkShift;
inline constexpr unsigned kAddressBits = 47;
// The range of a guest has 1 TiB, which is more than any machine has memory.
inline constexpr unsigned kRangeBits = 40;

// Units have one of two sizes: a short slab has enough small blocks, a long slab enough larger ones.
inline constexpr unsigned kShortShift = 16;
inline constexpr unsigned kLongShift = 19;
inline constexpr size_t kShortSlabMaximum = 2048;  // the largest block of a short slab

// Values of the owner word. Any other value is the address of the owning Heap, perhaps with kFullBit and kSlowBit.
inline constexpr uintptr_t kNobody = 0;        // a free unit, or one inside a run
inline constexpr uintptr_t kFullBit = 1;       // with a heap: the slab is full and not in the heap's queue
inline constexpr uintptr_t kSampledOwner = 2;  // a slab of sampled blocks (sampled_blocks.h)
inline constexpr uintptr_t kRunOwner = 4;      // a run
inline constexpr uintptr_t kSlowBit = 8;       // with a heap: every free takes the slow path (options.h)
inline constexpr uintptr_t kLeftOwner = 16;    // a slab that its heap has left, about to be released (arena_life.cc)

// The number of an arena (arena.h).
using ArenaIndex = uint16_t;

struct Block {
  Block* next;
};

// Zero-initialised state is valid: empty.
struct BlockList {
  Block* first;
  uint32_t length;
};

// Slab::remote_free: the address of the first block of a stack; above kRemoteCountShift the number of its blocks, so
// that the owner takes all of them without visiting them; and kNotifyBit. kNotifyBit: the slab is full, and the thread
// that frees a block takes the bit and sends a wake.
inline constexpr uintptr_t kNotifyBit = 1;
inline constexpr unsigned kRemoteCountShift = 48;
static_assert(kRemoteCountShift >= kAddressBits);
static_assert((size_t{1} << kShortShift) / 8 < size_t{1} << (64 - kRemoteCountShift), "a count fits");

inline Block* RemoteBlocks(uintptr_t remote) {
  return reinterpret_cast<Block*>(remote & ((uintptr_t{1} << kRemoteCountShift) - 1) & ~kNotifyBit);
}
inline uint32_t RemoteCount(uintptr_t remote) { return static_cast<uint32_t>(remote >> kRemoteCountShift); }
inline uintptr_t RemoteWord(const Block* first, uint32_t count) {
  return reinterpret_cast<uintptr_t>(first) | uintptr_t{count} << kRemoteCountShift;
}

// The descriptor of a unit. Zero-initialised state is valid: a free unit that has never been used.
struct alignas(128) Slab {
  std::atomic<uintptr_t> owner;
  Block* local_free;   // blocks freed by the owner
  uint32_t used;       // blocks ready, live, remotely freed or returned
  uint32_t carved;     // blocks that were ever ready
  uint32_t capacity;   // blocks in the slab
  uint8_t size_class;  // of its blocks
  bool fresh;          // blocks read as zero: the unit was clean, and no block was reused
  bool wake_pending;   // the owner has brought the slab back, but another thread's wake for it is still to come
  bool queued;         // on its heap's or pool's list of slabs with free blocks
  size_t size;         // of its blocks; usable size of a run
  Slab* next;          // the list of slabs with free blocks
  Slab* previous;
  uint32_t used_settled;  // `used` at the last Heap::Settle; the difference is the local frees not yet counted
  bool distant;           // many blocks of local_free were freed by other threads, in another processor's cache
  ArenaIndex arena;       // of its heap, pool or run

  alignas(64) std::atomic<uintptr_t> remote_free;  // RemoteWord, or kNotifyBit
  Slab* wake_next;                                 // the heap's list of wakes
  uint32_t units;                                  // 1, or the units of a run
  bool dirty;                                      // a free unit that may have old contents
  union {
    struct {
      size_t requested;  // of a run: the size that the program requested
      uint64_t sample;   // of a run: its serial number as a sample; 0: it is not a sample
    };
    uint64_t returned_pages[2];  // of a slab: bit of a page: it has gone back to the system
  };
  uint32_t touched;        // bytes from the unit's beginning that earlier owners have used
  uint32_t returned;       // blocks with a returned page
  uint64_t free_since;     // CoarseMilliseconds() when a dirty unit became free
  uint32_t searched_free;  // the free blocks at the last search for free pages, or fewer
  uint32_t seen_free;      // the free blocks when the heap last checked whether the slab is idle (heap_sparse.cc); or 0
};
static_assert(sizeof(Slab) == 128);

// The header of a chunk, in the place of unit 0's descriptor.
struct Chunk {
  std::atomic<Chunk*> next;  // all chunks of the unit size
  uint32_t shift;            // log2 of the unit size
  uint32_t units;            // including unit 0
  uint64_t free_bits[8];     // bit of a unit: 1 if it is free
  uint32_t longest;          // the length of the longest row of free units
  uint32_t reach;            // the units from this one on were never in use, and their descriptors never written
  bool huge_pages;           // the kernel may back it with huge pages; false once a page of a slab has gone back
  Chunk* next_of_room;       // in the list of the chunks with the same room (chunks.h)
  Chunk* previous_of_room;
  // A lower bound of free_since of the dirty units; kNeverDirty: no unit is dirty.
  std::atomic<uint64_t> dirty_since;
};
inline constexpr uint64_t kNeverDirty = UINT64_MAX;
static_assert(sizeof(Chunk) <= sizeof(Slab));
static_assert((kChunkSize >> kShortShift) == 8 * 64, "free_bits has a bit for each unit");
static_assert((kChunkSize >> kShortShift) * sizeof(Slab) <= size_t{1} << kShortShift, "descriptors fit in unit 0");

// The kind of each 32 MiB of the address space: one of these, or the unit shift of the chunk there.
inline constexpr uint8_t kForeign = 0;    // not the allocator's; also the kind of nullptr
inline constexpr uint8_t kHuge = 1;       // a huge block begins there
inline constexpr uint8_t kFreedHuge = 2;  // a huge block began there, and was the allocator's last use of the address
#ifdef HEAPTAP_GUEST
// A guest asks for no address outside its range (guest/range.h). A small table leaves the host more of a limit on
// locked memory.
inline constexpr unsigned kTableBits = kRangeBits;
#else
inline constexpr unsigned kTableBits = kAddressBits;
#endif
inline constexpr size_t kChunkTableSize = size_t{1} << (kTableBits - kChunkShift);
extern std::atomic<uint8_t> chunk_table[kChunkTableSize];

inline size_t TableIndex(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) >> kChunkShift & (kChunkTableSize - 1);
}

// The kind at an address, ignoring the bits from kAddressBits on. No block has such bits; the slow paths of free check
// them.
inline uint8_t ChunkKindBelow(const void* pointer) {
  return chunk_table[TableIndex(pointer)].load(std::memory_order_relaxed);
}

inline uint8_t ChunkKind(const void* pointer) {
  bool has_more_bits = reinterpret_cast<uintptr_t>(pointer) >> kAddressBits != 0;
  return has_more_bits ? kForeign : ChunkKindBelow(pointer);
}

// The descriptor of the unit that holds `pointer`. REQUIRES: `shift` == ChunkKind(pointer) > kFreedHuge.
inline Slab* SlabOf(const void* pointer, unsigned shift) {
  HEAPTAP_ASSERT(shift > kFreedHuge && shift == ChunkKind(pointer));
  uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  uintptr_t unit = (address & (kChunkSize - 1)) >> shift;
  uintptr_t chunk = (address >> kChunkShift & ((size_t{1} << (kAddressBits - kChunkShift)) - 1)) << kChunkShift;
  return reinterpret_cast<Slab*>(chunk + unit * sizeof(Slab));
}

inline Chunk* ChunkOf(const Slab* slab) {
  return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(slab) & ~(kChunkSize - 1));
}

inline size_t UnitIndex(const Slab* slab) {
  return (reinterpret_cast<uintptr_t>(slab) & (kChunkSize - 1)) / sizeof(Slab);
}

// The beginning of the unit.
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

// The slab of a block. REQUIRES: the block is in a slab.
inline Slab* SlabOfBlock(const void* block) { return SlabOf(block, ChunkKind(block)); }

// Whether a unit's descriptor is at this address. The chunk may be smaller than the 32 MiB that its entry of
// chunk_table stands for.
inline bool IsUnit(const Slab* slab) { return ChunkKind(slab) > kFreedHuge && UnitIndex(slab) < ChunkOf(slab)->units; }

// The bytes of a slab's memory, including those behind its last block.
inline size_t SlabBytes(const Slab* slab) { return size_t{1} << ChunkOf(slab)->shift; }

inline bool HasUntouched(const Slab* slab) { return slab->carved < slab->capacity; }

// Whether no block is ready or live or was freed by another thread.
inline bool IsEmptied(const Slab* slab) { return slab->used == slab->returned; }

// Whether the owner can make a block ready, not counting blocks that other threads have freed or that are returned.
inline bool HasBlocks(const Slab* slab) { return slab->local_free != nullptr || HasUntouched(slab); }

// Takes `count` adjacent untouched blocks, and returns the first. REQUIRES: 1 <= count <= capacity - carved.
char* Carve(Slab* slab, uint32_t count);

// Whether a block of the slab, or the run, begins at `pointer`. The block may be free.
bool IsBlock(const Slab* slab, const void* pointer);

// Whether a page of the slab is returned.
inline bool IsPageReturned(const Slab* slab, uint32_t page) {
  return (slab->returned_pages[page / 64] >> page % 64 & 1) != 0;
}
// Whether block `index` is returned: it touches a returned page.
bool IsReturned(const Slab* slab, uint32_t index);

// Whether a block of the calling thread's slab is untouched, returned or on local_free. Takes time proportional to the
// length of local_free.
bool IsFreeBlock(const Slab* slab, const Block* block);

// Frees a block of the calling thread's slab. True: it was the last used one.
[[gnu::always_inline]] inline bool PushLocalFree(Slab* slab, Block* block) {
  block->next = slab->local_free;
  slab->local_free = block;
  // Release: a thread that borrows the heap (borrow.h) takes the slab once `used` counts no ready or live block any
  // more. By then the owner is done with the slab.
  return ReleaseOne(&slab->used);
}

// Whether a list of blocks returns to its first block after one or two steps, as after a double free of that block.
inline bool IsShortCycle(const Block* first) {
  const Block* next = first->next;
  return next != nullptr && (next == first || next->next == first);
}

inline uint32_t Length(const Block* first) {
  uint32_t length = 0;
  for (; first != nullptr; first = first->next) length++;
  return length;
}

// Cuts a cyclic list before it repeats a block. Returns how many blocks it has.
uint32_t CutCycle(Block* first);

// A doubly linked list of slabs. Zero-initialised state is valid: empty. Sets and clears Slab::queued.
class SlabList {
 public:
  Slab* first() const { return first_; }
  Slab* last() const { return last_; }
  uint32_t count() const { return count_; }
  void PushFront(Slab* slab);
  void PushBack(Slab* slab);
  void Remove(Slab* slab);
  // REQUIRES: the list is not empty.
  void MoveFirstToBack() {
    HEAPTAP_ASSERT(first_ != nullptr);
    Slab* slab = first_;
    if (slab->next == nullptr) return;
    first_ = slab->next;
    first_->previous = nullptr;
    slab->next = nullptr;
    slab->previous = last_;
    last_->next = slab;
    last_ = slab;
  }

 private:
  Slab* first_;
  Slab* last_;
  uint32_t count_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_SLAB_H_
