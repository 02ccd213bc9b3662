// SPDX-License-Identifier: Apache-2.0
//
// A heap: the slabs of one thread.
//
// For each class it has a ready list, from which malloc pops, fresh blocks, from which malloc's slow path takes the
// next if the list is empty, and a queue of the slabs that may have free blocks. When no block is ready the heap takes
// one batch from one slab: the blocks that were freed since the slab's last turn go on the list, or else a few
// untouched ones are the fresh ones; never more than the countdown allows. So at any time all ready blocks come from
// one slab. A list has its links in the blocks; fresh blocks have none, so that memory is touched by the program before
// anybody else.
//
// A slab that has nothing to give leaves the queue and is FULL: kFullBit in its owner word, kNotifyBit in its remote
// word. The next free brings it back. If that is the owner's, it finds that the owner word is not its heap, and takes
// the slow path (FreeInFullSlab). If it is another thread's, that thread takes the notify bit and pushes the slab on
// the heap's list of wakes, which the owner reads when it refills.
//
//   kNotifyBit set      =>  the slab is full and no wake for it is on its way
//   a wake on its way   =>  the slab is full, or wake_pending is set; and the slab is not released
//
// Not thread safe: a heap belongs to the thread that has it (thread.h). Zero-initialised state is valid once
// observer::StartHeap was called.
#ifndef HEAPTAP_ALLOCATOR_CORE_HEAP_H_
#define HEAPTAP_ALLOCATOR_CORE_HEAP_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/countdown.h"
#include "allocator/core/observer.h"
#include "allocator/core/options.h"
#include "allocator/core/slab.h"
#include "allocator/core/thread_counters.h"

namespace heaptap {

enum class HeapState : uint8_t {
  kOwned,      // by a thread
  kParked,     // waits for a thread
  kAbandoned,  // in the child of a fork: its thread was changing it and is no more
};

// A number that one thread changes and any may read.
class SharedCount {
 public:
  uint64_t Read() const { return count_.load(std::memory_order_relaxed); }
  void Add(uint64_t amount) { count_.store(Read() + amount, std::memory_order_relaxed); }
  // For more than one thread that changes it.
  void AddShared(uint64_t amount) { count_.fetch_add(amount, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_;
};

// What a heap counts for the statistics of a class, since its beginning.
struct ClassCounts {
  SharedCount handed_out;  // blocks made ready
  SharedCount taken_back;  // ready blocks that went back unused
  SharedCount refills;
  SharedCount flushes;
  SharedCount collected;     // blocks of this heap that others have freed
  SharedCount remote_frees;  // blocks of others that this heap's thread has freed
};

struct Heap {
  Block* ready[kSmallClasses];
  char* fresh[kSmallClasses];      // the next fresh block; fresh_end: there is none
  char* fresh_end[kSmallClasses];  // the last blocks that were carved off their slab

  SlabList queue[kSmallClasses];
  Slab* empty[kSmallClasses];           // a queued slab with no used block, kept lest a loop get and release it
  Slab* idle[kSmallClasses];            // what `empty` was at the last ReleaseIdle
  uint8_t poor_batches[kSmallClasses];  // lately, less the others
  uint32_t batch[kSmallClasses];        // blocks made ready since `counters` was brought up to date
  ThreadCounters* counters;             // of the thread that has the heap; nullptr: none, or many by turns
  ClassCounts counts[kSmallClasses];
  uint32_t ticks_left;  // slow paths until the next look at the clock (maintenance.h)
  uint32_t tick_interval;
  uint64_t idle_since;         // CoarseMilliseconds() at the last ReleaseIdle
  std::atomic<uint32_t> busy;  // its thread is in a slow path
  HeapState state;             // this and the rest by thread.cc, under its lock
  bool orphaned;               // parked by a fork, without a Flush
  uint8_t exit_rounds;         // how often the thread's destructor has been called
  uint64_t serial;
  Heap* next_parked;
  Heap* next;  // all heaps

  alignas(Countdown) unsigned char observer_state[observer::kStateBytes];

  // The slab of another heap whose notify bit the thread is about to take, until its wake is on the list.
  std::atomic<Slab*> waking;

  alignas(64) std::atomic<Slab*> wakes;

  // What Take found: a block; or that the observer wants this allocation, and its weight; or, with neither, that there
  // is no memory.
  struct Taken {
    void* block;
    uint64_t weight;
  };

  // The next fresh block of the class, or else what `Slow` returns.
  template <void* (*Slow)(size_t)>
  [[gnu::always_inline]] void* TakeFreshOr(unsigned size_class, size_t size) {
    char* block = fresh[size_class];
    if (block == fresh_end[size_class]) return Slow(size);
    fresh[size_class] = block + kClassSize[size_class];
    return block;
  }

  // A ready block of the class. nullptr: there is none.
  void* TakeReady(unsigned size_class);

  Countdown& countdown() { return *reinterpret_cast<Countdown*>(observer_state); }

  // Puts all ready blocks back into their slabs. No allocation has been counted for them then, so the observer may
  // begin other countdowns.
  void PutBackReady();

  // The blocks that are ready will not be looked at by the observer, whose countdowns begin behind them.
  void SkipReady();

  // One block of the class.
  Taken Take(unsigned size_class);

  // Frees a block of a full slab of this heap.
  void FreeInFullSlab(Slab* slab, Block* block);

  // A queued slab has no used block any more: keeps it as the class's empty one, or releases it.
  void SlabEmptied(Slab* slab);

  // Releases the slabs that have been kept empty since the last call.
  void ReleaseIdle();

  // Collects what other threads have freed and releases all empty slabs.
  void Scavenge();

  // Puts all ready blocks back into their slabs, then scavenges: before the heap is parked.
  void Flush();

  // Bring what `counters` say about this heap's blocks up to date: exact until the thread's next malloc or free. The
  // first looks at all ready blocks, the second at all queued slabs, and returns how many these are.
  void SettleAllocations();
  uint64_t SettleFrees();

  // In the child of a fork: `slab` is one that a thread which is no more was about to wake this heap for. Puts it on
  // the list of wakes if it waits for that.
  void RestoreWake(Slab* slab);

  // Looks whether the thread has more than ever before, if anybody wants to know.
  void FollowPeak();

 private:
  uintptr_t OwnerWord() const { return reinterpret_cast<uintptr_t>(this) | core_options.owner_bits; }
  void CountRefill(unsigned size_class, uint32_t count);
  void Settle(Slab* slab);
  void CollectRemote(Slab* slab);
  void* Refill(unsigned size_class, uint64_t limit);
  uint32_t CountReady(unsigned size_class) const;
  void PutBackReady(unsigned size_class);  // of one class
  void Release(Slab* slab);
  void MarkFull(Slab* slab);
  void MarkNotFull(Slab* slab);
  void ProcessWakes();
};

// What a thread works on: its own heap, or else the empty one, whose ready lists are empty and which owns no slab
// (thread.h).
extern Heap empty_heap;
extern constinit thread_local Heap* current_heap;

// Frees a block of another heap's slab. Any thread.
void FreeRemotely(Slab* slab, Block* block);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_HEAP_H_
