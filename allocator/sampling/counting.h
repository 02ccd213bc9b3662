// SPDX-License-Identifier: Apache-2.0
//
// Samples that the process counts itself, because their stacks are known (contract.h, AREAS; known_stacks.h).
//
// A block that was counted has the number of its counts in place of a serial number. So its free finds the counts, and
// is counted there too.
//
// A thread counts with plain instructions in its own counts, each of which adds to memory: a signal handler that counts
// too comes before or after it. Frees by other threads are atomic.
//
// Any thread, no lock held, in no HeapScope. Zero-initialised state: the thread knows no stack.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_COUNTING_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_COUNTING_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/check.h"
#include "allocator/sampling/areas.h"
#include "allocator/sampling/kept_blocks.h"
#include "allocator/sampling/known_stacks.h"
#include "allocator/sampling/stack_numbers.h"

namespace heaptap::counting {

// Of the calling thread; for sampled_blocks.cc.
struct ThreadBlocks {
  KeptBlocks kept;
  uint64_t live_change;  // what heaptap_statistics.sampled_objects has not been told yet; may be below 0
  uint64_t discards;     // how often blocks had been discarded (DiscardBlocks) when the thread last looked
};

namespace internal {

// What a thread knows.
struct Knowledge {
  KnownStacks stacks;
  StackNumbers numbers;
  uint32_t mailbox;
  uint32_t tid;      // as in the counts; 0: not known yet
  uint32_t found;    // samples at known stacks
  uint64_t state;    // `internal::state`, when it began to learn
  uint64_t books;    // `internal::books_bits` then
  bool is_learning;  // a signal handler that finds this leaves all as it is
  ThreadBlocks blocks;
  StackWord words[HEAPTAP_MAILBOX_WORDS];
};

extern constinit thread_local Knowledge* mine;

// Changes when no stack that was learnt before may be used any more.
extern std::atomic<uint64_t> state;

// Serial numbers are lower, and kEnded is higher.
inline constexpr uint64_t kCounted = uint64_t{1} << 62;
inline constexpr unsigned kBooksShift = 32;
// One of this many samples at known stacks is reported: the kernel then says whether somebody else listens by now.
inline constexpr uint32_t kReportedOf = 1024;
// Bits 32 to 47 of the serial number of a counted block: a number for the books in which the block was counted. It
// changes in the child of a fork, after a reset, and with another collector.
extern std::atomic<uint64_t> books_bits;

[[gnu::always_inline]] inline void Add(uint64_t& sum, uint64_t amount) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  asm volatile("addq %1, %0" : "+m"(sum) : "er"(amount));
#else
  __atomic_fetch_add(&sum, amount, __ATOMIC_RELAXED);
#endif
}

}  // namespace internal

// The number of the counts for a sample that begins in this frame; 0: it must be reported. `frame`: as in
// KnownStacks::Find.
[[gnu::always_inline]] inline uint32_t Find(uint64_t frame) {
  internal::Knowledge* const mine = internal::mine;
  if (mine == nullptr || mine->state != internal::state.load(std::memory_order_relaxed)) return 0;
  if (!areas::MayCount()) return 0;
  const uint32_t number = mine->stacks.Find(frame);
  if (HEAPTAP_UNLIKELY(number != 0 && ++mine->found % internal::kReportedOf == 0)) return 0;
  return number;
}

// Null: the thread counts nothing.
[[gnu::always_inline]] inline ThreadBlocks* BlocksOfThread() {
  return internal::mine != nullptr ? &internal::mine->blocks : nullptr;
}

// Adds to a number that only the calling thread changes, in one instruction: a signal handler that adds too comes
// before or after it.
[[gnu::always_inline]] inline void AddAtOnce(uint64_t& sum, uint64_t amount) { internal::Add(sum, amount); }

// What a counted block has in place of a serial number.
[[gnu::always_inline]] inline uint64_t SerialOf(uint32_t counts) {
  return internal::kCounted | internal::books_bits.load(std::memory_order_relaxed) | counts;
}
[[gnu::always_inline]] inline bool IsCounted(uint64_t serial) { return (serial & internal::kCounted) != 0; }

// REQUIRES: Find has returned the number, on this thread.
[[gnu::always_inline]] inline void CountAllocated(uint32_t number, size_t size) {
  heaptap_counts& counts = areas::CountsOf(number);
  internal::Add(counts.objects, 1);
  internal::Add(counts.bytes, size);
}

// Counts the free of a block of this size. REQUIRES: IsCounted(serial).
[[gnu::always_inline]] inline void CountFreed(uint64_t serial, size_t size) {
  // The block was counted in other books: those of the parent, or those before a reset.
  if (HEAPTAP_UNLIKELY(((serial ^ internal::books_bits.load(std::memory_order_relaxed)) >> internal::kBooksShift &
                        UINT16_MAX) != 0 ||
                       !IsOwnProcess())) {
    return;
  }
  heaptap_counts& counts = areas::CountsOf(static_cast<uint32_t>(serial));
  const internal::Knowledge* const mine = internal::mine;
  if (HEAPTAP_LIKELY(mine != nullptr && counts.tid == mine->tid)) {
    internal::Add(counts.freed_objects, 1);
    internal::Add(counts.freed_bytes, size);
  } else {
    __atomic_fetch_add(&counts.others_objects, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counts.others_bytes, size, __ATOMIC_RELAXED);
  }
}

// The number of the thread's mailbox, to be passed with a sample; 0: none, for want of areas, mailboxes or memory, or
// because samples may not be counted now. REQUIRES: areas::HasAny().
uint32_t MailboxOfThread();

// Learns the stack of the sample that was just reported with the mailbox of the thread. `frame`: as in Find.
void Learn(uint64_t frame, uint64_t serial);

// For tests: samples at known stacks are reported too, and the kernel's stack is compared with the known one. If they
// differ, the process aborts with a message.
void StartVerifying();
extern bool is_verifying;  // constant after the start of the process
// `number`: what Find has returned for the sample that was just reported with this serial number.
void Verify(uint32_t number, uint64_t serial);

// Forgets all stacks of all threads: code that they lead through may be gone.
void ForgetStacks();

// The books end to which the counts belong: nothing is counted until there is an area of other books, and the frees of
// what was counted are ignored.
void Close();
// Takes over an area (areas.h, Add).
bool AddArea(void* mapping, areas::Wanted wanted);

// The thread ends: its memory and its mailbox are free. REQUIRES: it keeps no block.
void EndThread();

// In the child of a fork.
void ForgetAfterFork();

}  // namespace heaptap::counting

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_COUNTING_H_
