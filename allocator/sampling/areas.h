// SPDX-License-Identifier: Apache-2.0
//
// The areas of the process: memory that it shares with the kernel and the collector, in which it counts samples
// (contract.h, AREAS).
//
// Other books need areas of their own: those of a second collector, or those after a reset. Areas of earlier books stay
// mapped, because a thread may be about to count there.
//
// Any thread, any time, also in a signal handler; no lock is taken. Zero-initialised state: there is no area.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_AREAS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_AREAS_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/platform/assert.h"
#include "allocator/sampling/probe_sites.h"
#include "heaptap/contract.h"

namespace heaptap::areas {
namespace internal {

inline constexpr uint32_t kCountsPerArea = HEAPTAP_AREA_BYTES / sizeof(heaptap_counts);

// All areas, those of earlier books first. The first `count` are not null.
extern std::atomic<char*> begins[HEAPTAP_AREAS];
extern std::atomic<uint32_t> count;
// The first area of the books; null: there is none.
extern std::atomic<char*> first;
// The same, while samples may be counted; else null.
extern std::atomic<const heaptap_area_head*> head;

}  // namespace internal

// Which area is of use to the process.
enum class Wanted : uint8_t {
  kNone,
  kFirst,  // of the books
  kNext,
};
// REQUIRES: a collector records the process.
Wanted WantedArea();
// How many areas the process has for its books.
uint32_t CountOfBooks();
// Takes over an area: a mapping of HEAPTAP_AREA_BYTES. False: there are as many as there may be. REQUIRES: one thread
// at a time calls it.
bool Add(void* mapping, Wanted wanted);

// Sets whether every sample is reported, because more is wanted to be known of it than counts tell.
void SetPaused(bool paused);

// Nothing is counted until the process has the first area of other books.
void Close();

// In the child of a fork: it has no areas.
void ForgetAfterFork();

// Whether samples may be counted now: there is an area of this process, and its collector reads it. May change at any
// time; a sample that is counted meanwhile is neither lost nor counted twice.
[[gnu::always_inline]] inline bool MayCount() {
  const volatile heaptap_area_head* const head = internal::head.load(std::memory_order_relaxed);
  if (head == nullptr || HEAPTAP_UNLIKELY(!IsOwnProcess())) return false;
  const uint32_t collector = head->collector_pid;
  return collector != 0 && collector == control::CollectorPid();
}

// Whether the process has ever had an area.
inline bool HasAny() { return internal::count.load(std::memory_order_relaxed) != 0; }

// A number for a mailbox of the calling thread, from 1 on; 0: all are taken.
uint32_t TakeMailbox();
void ReturnMailbox(uint32_t number);
// REQUIRES: TakeMailbox has returned the number, and HasAny().
inline const heaptap_mailbox& Mailbox(uint32_t number) {
  HEAPTAP_ASSERT(number != 0 && number <= HEAPTAP_MAILBOXES);
  return *reinterpret_cast<const heaptap_mailbox*>(internal::first.load(std::memory_order_acquire) +
                                                   number * HEAPTAP_AREA_PAGE_BYTES);
}

// A number for new counts of a stack and a thread; 0: there is no room left, and another area is wanted.
uint32_t NewCounts(uint64_t stack_id, uint32_t tid);
// REQUIRES: NewCounts has returned the number.
[[gnu::always_inline]] inline heaptap_counts& CountsOf(uint32_t number) {
  char* const begin = internal::begins[number / internal::kCountsPerArea].load(std::memory_order_relaxed);
  return reinterpret_cast<heaptap_counts*>(begin)[number % internal::kCountsPerArea];
}

}  // namespace heaptap::areas

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_AREAS_H_
