// SPDX-License-Identifier: Apache-2.0
#include "allocator/sample/remembered.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>

#include "allocator/platform/system.h"
#include "heaptap/contract.h"
#include "heaptap/sample.h"

uint32_t heaptap_sample_counts[HEAPTAP_SAMPLE_COUNTS];

namespace heaptap::sample {
namespace {

// 0: empty.
using Slot = std::atomic<uint64_t>;
struct alignas(64) Line {
  Slot slots[8];
};

constexpr unsigned kLgFirst = 12;  // lines of the first level: 256 KiB of memory that is touched as it is used
constexpr unsigned kLgGrowth = 3;
// Room for more than a hundred million samples.
constexpr unsigned kLevels = 5;

constinit Line first[1 << kLgFirst];

struct Level {
  std::atomic<Line*> lines;      // nullptr: not mapped
  std::atomic<uint64_t> in_use;  // slots
};
constinit Level levels[kLevels] = {{{first}, {}}};

constexpr size_t LinesOf(unsigned level) { return size_t{1} << (kLgFirst + level * kLgGrowth); }

constexpr uint64_t HashOf(uint64_t key) { return key * 0x9e3779b97f4a7c15; }

uint64_t KeyOf(const void* block, uint64_t heap) { return reinterpret_cast<uint64_t>(block) ^ HEAPTAP_HEAP_TAG(heap); }

// The count of the header (sample.h) for the block.
uint32_t& CountFor(const void* block) {
  static_assert(HEAPTAP_SAMPLE_COUNTS == 1 << 12);
  return heaptap_sample_counts[HashOf(reinterpret_cast<uint64_t>(block)) >> 52];
}

Line& LineOf(Line* lines, unsigned level, uint64_t key) {
  return lines[HashOf(key) >> (64 - kLgFirst - level * kLgGrowth)];
}

Line* LinesOrMap(unsigned level) {
  Line* lines = levels[level].lines.load(std::memory_order_acquire);
  if (lines != nullptr) return lines;
  const size_t size = LinesOf(level) * sizeof(Line);
  const long mapped = SystemCall(SYS_mmap, 0, static_cast<long>(size), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (Failed(mapped)) return nullptr;
  if (levels[level].lines.compare_exchange_strong(lines, reinterpret_cast<Line*>(mapped), std::memory_order_acq_rel)) {
    return reinterpret_cast<Line*>(mapped);
  }
  // Another thread was faster.
  SystemCall(SYS_munmap, mapped, static_cast<long>(size));
  return lines;
}

// Empties a slot that holds the key.
bool Empty(Level& level, Slot& slot, uint64_t key, const void* block) {
  if (!slot.compare_exchange_strong(key, 0, std::memory_order_relaxed)) return false;
  level.in_use.fetch_sub(1, std::memory_order_relaxed);
  __atomic_fetch_sub(&CountFor(block), 1, __ATOMIC_RELAXED);
  return true;
}

}  // namespace

bool Remember(const void* block, uint64_t heap) {
  const uint64_t key = KeyOf(block, heap);
  for (unsigned level = 0; level < kLevels; level++) {
    Line* lines = LinesOrMap(level);
    if (lines == nullptr) return false;
    for (Slot& slot : LineOf(lines, level, key).slots) {
      uint64_t empty = 0;
      if (slot.load(std::memory_order_relaxed) != 0) continue;
      // Counted before the slot is filled, since a thread that finds the key lowers the count.
      __atomic_fetch_add(&CountFor(block), 1, __ATOMIC_RELAXED);
      levels[level].in_use.fetch_add(1, std::memory_order_relaxed);
      if (slot.compare_exchange_strong(empty, key, std::memory_order_release)) return true;
      levels[level].in_use.fetch_sub(1, std::memory_order_relaxed);
      __atomic_fetch_sub(&CountFor(block), 1, __ATOMIC_RELAXED);
    }
  }
  return false;
}

bool Forget(const void* block, uint64_t heap) {
  const uint64_t key = KeyOf(block, heap);
  for (unsigned level = 0; level < kLevels; level++) {
    Line* lines = levels[level].lines.load(std::memory_order_acquire);
    if (lines == nullptr) return false;
    for (Slot& slot : LineOf(lines, level, key).slots) {
      if (slot.load(std::memory_order_relaxed) == key && Empty(levels[level], slot, key, block)) return true;
    }
  }
  return false;
}

void ForgetRange(const void* begin, size_t size, uint64_t heap, void (*forgotten)(const void* block, uint64_t heap)) {
  const uint64_t from = reinterpret_cast<uint64_t>(begin);
  for (unsigned level = 0; level < kLevels; level++) {
    Line* lines = levels[level].lines.load(std::memory_order_acquire);
    if (lines == nullptr || levels[level].in_use.load(std::memory_order_relaxed) == 0) continue;
    for (size_t i = 0; i < LinesOf(level); i++) {
      for (Slot& slot : lines[i].slots) {
        const uint64_t key = slot.load(std::memory_order_relaxed);
        const uint64_t address = key ^ HEAPTAP_HEAP_TAG(heap);
        if (key == 0 || HEAPTAP_HEAP_TAG(address) != 0 || address - from >= size) continue;
        const void* block = reinterpret_cast<const void*>(address);
        if (Empty(levels[level], slot, key, block)) forgotten(block, heap);
      }
    }
  }
}

}  // namespace heaptap::sample
