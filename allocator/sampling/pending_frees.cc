// SPDX-License-Identifier: Apache-2.0
//
// This file uses __atomic builtins instead of std::atomic, because eBPF programs share the structs.
#include "allocator/sampling/pending_frees.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/core/heap.h"
#include "allocator/core/thread.h"
#include "allocator/sampling/probes.h"

namespace heaptap {
namespace {

constinit heaptap_pending pending{};

constinit std::atomic<bool> at_once;
constinit std::atomic<bool> has_ended;

uint32_t CountOf(const heaptap_slot& slot) { return __atomic_load_n(&slot.count, __ATOMIC_RELAXED); }

// Release: the entries are written before the count that includes them.
void SetCount(heaptap_slot& slot, uint32_t count) { __atomic_store_n(&slot.count, count, __ATOMIC_RELEASE); }

uint64_t NumberOf(const heaptap_slot& slot) { return static_cast<uint64_t>(&slot - pending.slots) + 1; }

bool IsSlotNumber(uint64_t number) { return number != 0 && number <= HEAPTAP_SLOTS; }

heaptap_slot& SlotOf(uint64_t number) { return pending.slots[number - 1]; }

// nullptr: the thread holds nothing back, because it has no heap, or too many threads have one.
heaptap_slot* SlotOfThread() {
  const uint64_t serial = current_heap->serial;
  return IsSlotNumber(serial) ? &SlotOf(serial) : nullptr;
}

void Report(const heaptap_slot& slot) {
  const uint32_t count = CountOf(slot);
  if (count != 0) heaptap_probe_frees(slot.frees, HEAPTAP_WHERE(NumberOf(slot), count));
}

void ReportSlot(heaptap_slot& slot) {
  Report(slot);
  SetCount(slot, 0);
  slot.weight = 0;
}

// The kernel reads as many slots as were ever used.
void NoteUsed(uint64_t number) {
  uint64_t used = __atomic_load_n(&pending.used, __ATOMIC_RELAXED);
  while (used < number &&
         !__atomic_compare_exchange_n(&pending.used, &used, number, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    continue;
  }
}

}  // namespace

void ReportFree(const heaptap_free& freed, size_t usable) {
  if (!HasListener(heaptap_semaphore_frees)) return;
  heaptap_slot* slot = SlotOfThread();
  if (slot == nullptr || at_once.load(std::memory_order_relaxed)) {
    heaptap_probe_frees(&freed, HEAPTAP_WHERE(0, 1));
    return;
  }
  const uint32_t count = CountOf(*slot);
  heaptap_free& entry = slot->frees[count];
  // A reader that finds the new address beside the old number finds no sample.
  __atomic_store_n(&entry.serial, freed.serial, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.address, freed.address, __ATOMIC_RELAXED);
  SetCount(*slot, count + 1);
  // The weight of the sample, up to a factor of two.
  const uint64_t interval = uint64_t{1} << control::EffectiveLgInterval();
  slot->weight += usable > interval ? usable : interval;
  NoteUsed(NumberOf(*slot));
  if (count + 1 == HEAPTAP_SLOT_FREES || slot->weight > HEAPTAP_SLOT_WEIGHT) ReportSlot(*slot);
}

ThreadFrees PendingFreesOfThread() {
  static constexpr heaptap_free kNone = {};
  const uint64_t number = current_heap->serial;
  if (HEAPTAP_UNLIKELY(!IsSlotNumber(number))) return {&kNone, 0};
  const heaptap_slot& slot = SlotOf(number);
  const uint32_t count = CountOf(slot);
  if (count == 0 && at_once.load(std::memory_order_relaxed)) return {&kNone, 0};
  return {slot.frees, HEAPTAP_WHERE(number, count)};
}

void ForgetFreesOfThread() {
  heaptap_slot* slot = SlotOfThread();
  if (slot == nullptr || CountOf(*slot) == 0) return;
  SetCount(*slot, 0);
  slot->weight = 0;
}

void ReportFreesOfThread() {
  if (heaptap_slot* slot = SlotOfThread()) ReportSlot(*slot);
}

void ReportFreesOfAllThreads() {
  ReportFreesOfThread();
  const uint64_t used = __atomic_load_n(&pending.used, __ATOMIC_RELAXED);
  for (uint64_t i = 0; i < used; i++) Report(pending.slots[i]);
}

void ReportFreesAtOnce(bool wanted) {
  at_once.store(wanted || has_ended.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (wanted) ReportFreesOfAllThreads();
}

void EndPendingFrees() {
  has_ended.store(true, std::memory_order_relaxed);
  ReportFreesAtOnce(true);
  heaptap_probe_frees(nullptr, 0);
}

void ForgetFreesAfterFork() {
  has_ended.store(false, std::memory_order_relaxed);
  for (uint64_t i = 0; i < pending.used; i++) {
    // A page that is not written stays shared with the parent.
    if (CountOf(pending.slots[i]) == 0) continue;
    SetCount(pending.slots[i], 0);
    pending.slots[i].weight = 0;
  }
}

}  // namespace heaptap
