// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/areas.h"

#include <stdint.h>

#include <atomic>

#include "allocator/platform/assert.h"
#include "heaptap/contract.h"

namespace heaptap::areas {
namespace internal {

constinit std::atomic<char*> begins[HEAPTAP_AREAS];
constinit std::atomic<uint32_t> count;
constinit std::atomic<char*> first;
constinit std::atomic<const heaptap_area_head*> head;

}  // namespace internal

namespace {

using internal::begins;
using internal::count;
using internal::first;
using internal::head;
using internal::kCountsPerArea;

// The head and the mailboxes come before the counts of a first area.
constexpr uint32_t kFirstCounts = (1 + HEAPTAP_MAILBOXES) * HEAPTAP_AREA_PAGE_BYTES / sizeof(heaptap_counts);

constinit std::atomic<uint32_t> next_counts;
constinit std::atomic<uint32_t> count_before;  // areas of earlier books
constinit std::atomic<bool> is_full;
constinit std::atomic<bool> is_closed;
constinit std::atomic<bool> is_paused;

void UpdateHead() {
  const bool may_count = !is_closed.load(std::memory_order_relaxed) && !is_paused.load(std::memory_order_relaxed);
  const char* const begin = first.load(std::memory_order_relaxed);
  head.store(may_count ? reinterpret_cast<const heaptap_area_head*>(begin) : nullptr, std::memory_order_relaxed);
}

// Whether the books of the first area are no longer those of the process.
bool IsOfOtherBooks() {
  if (is_closed.load(std::memory_order_relaxed)) return true;
  const auto* const known = reinterpret_cast<const volatile heaptap_area_head*>(first.load(std::memory_order_relaxed));
  return known->collector_pid != control::CollectorPid();
}

// Bit N: mailbox N + 1 is taken.
constinit std::atomic<uint64_t> mailboxes;
static_assert(HEAPTAP_MAILBOXES < 64);

}  // namespace

Wanted WantedArea() {
  const uint32_t now = count.load(std::memory_order_acquire);
  if (now == HEAPTAP_AREAS) return Wanted::kNone;
  if (now == 0 || IsOfOtherBooks()) return Wanted::kFirst;
  return is_full.load(std::memory_order_relaxed) ? Wanted::kNext : Wanted::kNone;
}

uint32_t CountOfBooks() { return count.load(std::memory_order_relaxed) - count_before.load(std::memory_order_relaxed); }

bool Add(void* mapping, Wanted wanted) {
  const uint32_t number = count.load(std::memory_order_relaxed);
  if (number == HEAPTAP_AREAS) return false;
  begins[number].store(static_cast<char*>(mapping), std::memory_order_relaxed);
  if (wanted == Wanted::kFirst) {
    count_before.store(number, std::memory_order_relaxed);
    // Release: a thread that sees the area also sees its head.
    first.store(static_cast<char*>(mapping), std::memory_order_release);
    next_counts.store(number * kCountsPerArea + kFirstCounts, std::memory_order_relaxed);
    is_closed.store(false, std::memory_order_relaxed);
  }
  // Release: a thread that gets a number in the area also sees the area.
  count.store(number + 1, std::memory_order_release);
  is_full.store(false, std::memory_order_relaxed);
  UpdateHead();
  return true;
}

void SetPaused(bool paused) {
  is_paused.store(paused, std::memory_order_relaxed);
  UpdateHead();
}

void Close() {
  is_closed.store(true, std::memory_order_relaxed);
  UpdateHead();
}

void ForgetAfterFork() {
  for (std::atomic<char*>& begin : begins) begin.store(nullptr, std::memory_order_relaxed);
  count.store(0, std::memory_order_relaxed);
  count_before.store(0, std::memory_order_relaxed);
  first.store(nullptr, std::memory_order_relaxed);
  is_closed.store(false, std::memory_order_relaxed);
  mailboxes.store(0, std::memory_order_relaxed);
  UpdateHead();
}

uint32_t TakeMailbox() {
  uint64_t taken = mailboxes.load(std::memory_order_relaxed);
  for (;;) {
    const auto free = static_cast<uint32_t>(__builtin_ctzll(~taken));
    if (free >= HEAPTAP_MAILBOXES) return 0;
    if (mailboxes.compare_exchange_weak(taken, taken | uint64_t{1} << free, std::memory_order_relaxed)) return free + 1;
  }
}

void ReturnMailbox(uint32_t number) {
  HEAPTAP_ASSERT(number != 0 && number <= HEAPTAP_MAILBOXES);
  mailboxes.fetch_and(~(uint64_t{1} << (number - 1)), std::memory_order_relaxed);
}

uint32_t NewCounts(uint64_t stack_id, uint32_t tid) {
  // Acquire: the areas of these counts can be used.
  const uint32_t end = count.load(std::memory_order_acquire) * kCountsPerArea;
  uint32_t number = next_counts.load(std::memory_order_relaxed);
  do {
    if (number >= end) {
      is_full.store(true, std::memory_order_relaxed);
      return 0;
    }
  } while (!next_counts.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
  heaptap_counts& counts = CountsOf(number);
  counts.tid = tid;
  // Release: a reader that sees the stack also sees the thread. A builtin, since C programs share the struct.
  __atomic_store_n(&counts.stack_id, stack_id, __ATOMIC_RELEASE);
  return number;
}

}  // namespace heaptap::areas
