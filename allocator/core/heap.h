// SPDX-License-Identifier: Apache-2.0
//
// A heap: the slabs of one thread.
//
// For each class a heap has a ready list, from which malloc pops; fresh blocks, of which malloc takes the next when the
// list is empty; and a queue of the slabs that may have free blocks. When no block is ready, the heap takes a batch
// from one slab: the blocks that were freed since the slab's last turn go on the ready list, or else a few untouched
// blocks become the fresh ones. The ready blocks are never more than the countdown allows. Freed blocks beyond that
// number are the rest of the batch, which goes on the ready list when the next countdown begins. So the blocks of a
// class that are ready or in a rest always come from one slab. The ready list has its links in the blocks. Fresh blocks
// have no links, so the program is the first to touch their memory.
//
// When a refill comes to a slab without free blocks and does not pass over it, the slab leaves the queue and is full:
// its owner word has kFullBit, its remote word kNotifyBit. The next free brings the slab back. If the owner frees, it
// finds that the owner word is not its heap, and takes the slow path (FreeInFullSlab). If another thread frees, it
// takes the notify bit and sends a wake: it pushes the slab on the heap's list of wakes. A refill processes a few of
// them, and all if the class has no other slab.
//
//   kNotifyBit set      =>  the slab is full, and no wake for it is pending
//   a wake is pending   =>  the slab is full, or wake_pending is set; and the slab is not released
//
// Not thread safe: a heap belongs to one thread at a time (thread.h). Zero-initialised state is valid once
// observer::StartHeap was called and `counters` is set.
#ifndef HEAPTAP_ALLOCATOR_CORE_HEAP_H_
#define HEAPTAP_ALLOCATOR_CORE_HEAP_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/countdown.h"
#include "allocator/core/observer.h"
#include "allocator/core/options.h"
#include "allocator/core/slab.h"
#include "allocator/core/sparse_slab.h"
#include "allocator/core/thread_counters.h"

namespace heaptap {

// When another thread has freed many blocks, a refill takes only this many, and walks along them: the walk costs a
// third of the cache misses that malloc would pay one by one. The number bounds what one call of malloc waits for.
inline constexpr uint32_t kDistantBlocks = 16;

// A slow path of malloc, for a request that finds no block ready. `size_class`: kSmallClasses if slabs serve no such
// size.
using SlowPath = void* (*)(size_t size, size_t size_class);

enum class HeapState : uint8_t {
  kOwned,      // a thread uses it
  kParked,     // free for the next new thread
  kScavenged,  // parked, and taken off the list by a thread that scavenges it
  kAbandoned,  // in the child of a fork: a thread that does not exist there was changing it
};

// A number that one thread changes and any thread may read.
class SharedCount {
 public:
  uint64_t Read() const { return count_.load(std::memory_order_relaxed); }
  void Add(uint64_t amount) { count_.store(Read() + amount, std::memory_order_relaxed); }
  void Clear() { count_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_;
};

// What a heap has counted for the statistics of a class since it was made.
struct ClassCounts {
  SharedCount handed_out;  // blocks of batches
  SharedCount refills;
  SharedCount taken_back;  // blocks that were put back
  SharedCount flushes;
  SharedCount slabs_made;

  void Clear() {
    for (SharedCount* count : {&handed_out, &refills, &taken_back, &flushes, &slabs_made}) count->Clear();
  }
};

// The part of a class that only slow paths use. A refill needs the first cache line.
struct alignas(64) HeapClass {
  SlabList queue;
  Slab* empty;           // a queued slab with no used block, kept so that loops do not release it
  BlockList rest;        // of the last batch
  uint32_t batch;        // blocks of batches since Heap::counters was brought up to date
  uint8_t poor_batches;  // recent poor batches, less the good ones
  ClassCounts counts;
  Slab* idle;  // the value of `empty` at the last ReleaseIdle
};

// How far a walk through the queues of a heap has come.
struct QueuePosition {
  unsigned next_class = 0;
  uint32_t left = 0;  // slabs of the class before next_class that are still to be visited
};

// Where the search for free pages begins: at the class of kLeastSparseSize.
inline constexpr QueuePosition kFirstSparse = {ClassOf(kLeastSparseSize), 0};

struct Heap {
  Block* ready[kSmallClasses];
  char* fresh[kSmallClasses];      // the next fresh block; == fresh_end: there is none
  char* fresh_end[kSmallClasses];  // the end of the fresh blocks

  HeapClass classes[kSmallClasses];
  ThreadCounters* counters;        // of the heap's thread, or else `nobodys`
  ThreadCounters nobodys;          // counts for a heap without a thread, and for shared heaps
  uint32_t ticks_left;             // slow paths until the clock is read again (maintenance.h)
  uint32_t tick_interval;          // the value that ticks_left began with
  uint64_t idle_since;             // CoarseMilliseconds() at the last ReleaseIdle
  std::atomic<uint32_t> busy;      // 1: its thread is in a slow path
  std::atomic<uint32_t> borrowed;  // 1: another thread uses it, and slow paths wait (borrow.h)
  HeapState state;                 // this and the fields up to `next` are under heaps_mutex (heap_list.h)
  bool orphaned;                   // parked by a fork, without a Flush
  ArenaIndex arena;                // of its slabs
  uint8_t exit_rounds;             // calls of the thread's destructor so far
  uint32_t thread_id;              // of its thread, if nothing reports the thread's end (heap_list.h); else 0
  uint64_t serial;                 // from 1 on; 0: the empty heap, and the shared heaps of arenas
  Heap* next_parked;
  Heap* next;  // in the list of all heaps

  alignas(Countdown) unsigned char observer_state[observer::kStateBytes];

  bool has_more;          // the last borrower has left wakes (under heaps_mutex)
  uint64_t refills_seen;  // CountRefills() when a round last checked whether the heap is idle (under heaps_mutex)
  uint64_t owed_frees;    // freed bytes that a borrower has found, and that only the owner may add to `counters`

  // For heap_sparse.cc.
  QueuePosition growing;    // how far the search that each new slab continues has come
  QueuePosition aging;      // how far the search for pages that have been free for long has come
  uint64_t returned_ahead;  // bytes that the heap has returned and not yet taken again with new slabs
  bool is_aging;

  // Wakes that the owner has taken off `wakes` and not yet processed, linked by Slab::wake_next.
  Slab* taken_wakes;

  // The slab of another heap whose notify bit the thread is about to take, until its wake is on the list.
  std::atomic<Slab*> waking;

  // The list of wakes, linked by Slab::wake_next. Other threads write it, so it has its own cache line.
  alignas(64) std::atomic<Slab*> wakes;

  // The result of Take. Exactly one holds: block != nullptr; weight != 0; both are zero, and there is no memory.
  struct Taken {
    void* block;
    uint64_t weight;  // the observer wants this allocation: its weight
  };

  // The next fresh block of the class, or else the result of `Slow`.
  template <SlowPath Slow>
  [[gnu::always_inline]] void* TakeFreshOr(size_t size_class, size_t size) {
    char* block = fresh[size_class];
    if (block == fresh_end[size_class]) return Slow(size, size_class);
    fresh[size_class] = block + kClassSize[size_class];
    return block;
  }

  // A ready block of the class. nullptr: no block is ready.
  void* TakeReady(unsigned size_class) {
    Block* block = ready[size_class];
    if (block == nullptr) return TakeFreshOr<NoBlock>(size_class, 0);
    ready[size_class] = block->next;
    return block;
  }

  Countdown& countdown() { return *reinterpret_cast<Countdown*>(observer_state); }
  const Countdown& countdown() const { return *reinterpret_cast<const Countdown*>(observer_state); }

  // Puts all ready blocks and rests back into their slabs and uncounts them, so that the observer may begin other
  // countdowns.
  void PutBackReady();

  // Takes a block of the class, or finds that the observer wants this allocation. Defined in refill.h.
  Taken Take(unsigned size_class);

  // Frees a block of a full slab of this heap.
  void FreeInFullSlab(Slab* slab, Block* block);

  // Called when a queued slab has lost its last used block: keeps it as the class's empty slab, or releases it.
  void SlabEmptied(Slab* slab);

  // Releases the slabs that have been kept empty since the last call.
  void ReleaseIdle();

  // Collects the blocks that other threads have freed, and releases all empty slabs.
  void Scavenge();

  // Called when the heap takes a new slab of the class whose memory was not resident. Returns as many bytes of free
  // pages from the slabs of other classes, so that a program that changes from one size to another does not grow. Looks
  // at a few slabs.
  void MakeUpFor(size_t bytes, unsigned size_class);
  // Begins to return the pages that were already free at the last call.
  void BeginAging();
  // Continues this work for a few slabs.
  void Age() {
    if (HEAPTAP_UNLIKELY(is_aging)) AgeSome();
  }
  // Returns all free pages.
  void ReturnAllFreePages();

  // Puts all ready blocks and rests back into their slabs, then scavenges: before the heap is parked.
  void Flush();

  // Leaves all slabs, whose blocks the program has given up; the caller releases the slabs. What the heap has counted
  // stays. REQUIRES: no thread allocates or frees a block of the heap.
  void LeaveSlabs();
  // Forgets what the heap has counted. REQUIRES: it has no slab.
  void ForgetCounts();

  // Bring `counters` up to date with this heap's blocks: exact until the thread's next malloc or free. The first visits
  // all ready blocks; the second visits all queued slabs, and returns their number.
  void SettleAllocations();
  uint64_t SettleFrees();

  // In the child of a fork: a thread of the parent was about to send a wake for `slab`. Puts the slab on the list of
  // wakes if it needs the wake and is not there yet.
  void RestoreWake(Slab* slab);

  // For a borrower (borrow.h). The slabs whose blocks are all free because other threads have freed them leave the
  // heap, and go on the list `free_slabs`, linked by Slab::next. Nothing of the heap points to them any more. Both
  // visit at most `most` slabs, and return false if there are more. ReclaimQueues continues at *position; a queue that
  // it has visited completely has its old order again.
  bool ReclaimWakes(uint32_t most, Slab** free_slabs);
  bool ReclaimQueues(uint32_t most, QueuePosition* position, Slab** free_slabs);

  // Refills of all classes so far. Any thread.
  uint64_t CountRefills() const;

  // The heap counts for no thread from now on.
  void CountForNobody() { counters = &nobodys; }

  // Records the thread's peak if the program watches it.
  void FollowPeak() {
    if (HEAPTAP_UNLIKELY(counters->PeakIsDue())) RecordPeak();
  }

 private:
  uintptr_t OwnerWord() const { return reinterpret_cast<uintptr_t>(this) | core_options.owner_bits; }
  void Settle(Slab* slab);
  void CollectRemote(Slab* slab);
  void BeginTurn(unsigned size_class, Slab* slab);
  void EndTurn(unsigned size_class, Slab* slab, uint32_t count);
  // Whether no block of the class is ready or in a rest.
  bool IsUsedUp(unsigned size_class) const {
    return ready[size_class] == nullptr && fresh[size_class] == fresh_end[size_class] &&
           classes[size_class].rest.first == nullptr;
  }
  void MakeReady(unsigned size_class, BlockList list);
  Slab* FindSlab(unsigned size_class);
  void MakeRestReady(unsigned size_class);
  void* Recycle(unsigned size_class, Slab* slab, uint32_t most);
  void* Refill(unsigned size_class);
  [[gnu::noinline]] void* RefillRarely(unsigned size_class);
  uint32_t CountReady(unsigned size_class) const;
  void PutBackReady(unsigned size_class);  // of one class
  void Renew(Slab* slab);
  void Release(Slab* slab);
  void MarkFull(Slab* slab);
  void MarkNotFull(Slab* slab);
  static void* NoBlock(size_t, size_t) { return nullptr; }
  [[gnu::cold]] void RecordPeak();
  [[gnu::noinline]] void ProcessWakes();
  // The next slab on a queue, which moves to the end of the queue. nullptr: all queues have been visited.
  Slab* NextQueued(QueuePosition* position);
  void AgeSome();
  size_t ReturnPagesOf(Slab* slab, bool is_thorough);
  Slab* NextWake();
  bool ProcessWake();
  void Detach(Slab* slab, Slab** free_slabs);
};

// Bytes that the owner has freed since the slab was settled. REQUIRES: `used` has not changed in another way since.
inline uint64_t UnsettledBytes(const Slab* slab) {
  HEAPTAP_ASSERT(slab->used_settled >= slab->used);
  return uint64_t{slab->used_settled - slab->used} * slab->size;
}

// Counts these bytes as freed.
inline void Heap::Settle(Slab* slab) {
  counters->deallocated += UnsettledBytes(slab);
  slab->used_settled = slab->used;
}

// Whether threads use the heap under the lock of its arena.
inline bool IsShared(const Heap& heap) { return heap.serial == 0; }

// The heap of the calling thread. A thread without one has the empty heap, which has no ready blocks and owns no slab
// (thread.h).
extern Heap empty_heap;
extern constinit thread_local Heap* current_heap;

// Puts a slab on the list of wakes of its heap. Any thread.
void PushWake(Heap* heap, Slab* slab);

// Frees a block of another heap's slab. Any thread.
void FreeRemotely(Slab* slab, Block* block);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_HEAP_H_
