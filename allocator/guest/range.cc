// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/range.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/chunk_memory.h"
#include "allocator/core/control.h"
#include "allocator/core/slab.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap {

namespace {

// The beginning of the range while there is none: no address of a process is above it.
constexpr uintptr_t kNoRange = uintptr_t{1} << 63;

constexpr size_t kBytes = size_t{1} << kRangeBits;
constexpr uintptr_t kTiB = uintptr_t{1} << 40;
// The range begins between these two addresses. The kernel maps from the top downwards, or in the old layout from 42
// TiB upwards, and maps programs at 85 TiB. mimalloc, the JVM and the sanitizers ask for addresses below 32 TiB and
// above 112 TiB.
constexpr uintptr_t kLowest = 48 * kTiB;
constexpr uintptr_t kHighest = 72 * kTiB;

}  // namespace

constinit GuestRange guest_range{kNoRange, kBytes};

namespace {

constexpr size_t kSlots = kBytes / kChunkSize;

// A byte is claimed by one instruction.
enum class Slot : uint8_t {
  kFree,
  kClaimed,  // about to become one of the others
  kOwn,
  kOthers,  // not the guest's: the program has mapped something there, or the system did not give it back
};
constinit std::atomic<Slot> slots[kSlots];
// Indexed by the first slot of the sample.
constinit HugeSample huge_samples[kSlots]{};

uintptr_t Begin() { return guest_range.begin.load(std::memory_order_acquire); }

// As hard to guess as the addresses of the stack and of this library, which the kernel has chosen. No system call: a
// filter may kill a process for one that it does not know.
uint64_t RandomNumber() {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // spreads each bit upwards
  constexpr unsigned kHalf = 32;
  const char here = 0;
  const uint64_t stack = reinterpret_cast<uintptr_t>(&here) / 16;
  const uint64_t library = reinterpret_cast<uintptr_t>(&slots) / kPageSize;
  return ((stack * kOdd) ^ library) * kOdd >> kHalf;
}

void ChooseRange() {
  if (Begin() != kNoRange) return;
  KeepRequestedSizes(true);
  const uintptr_t begin = kLowest + RandomNumber() % ((kHighest - kLowest) / kChunkSize) * kChunkSize;
  uintptr_t before = kNoRange;
  guest_range.begin.compare_exchange_strong(before, begin, std::memory_order_acq_rel);
}

char* Address(size_t slot) { return reinterpret_cast<char*>(Begin() + slot * kChunkSize); }

size_t SlotOf(const void* pointer) { return (reinterpret_cast<uintptr_t>(pointer) - Begin()) / kChunkSize; }

void SetSlots(size_t first, size_t count, Slot state) {
  // Release: the next owner finds the memory as this one has left it.
  for (size_t i = first; i < first + count; i++) slots[i].store(state, std::memory_order_release);
}

bool Claim(size_t slot) {
  Slot before = Slot::kFree;
  return slots[slot].compare_exchange_strong(before, Slot::kClaimed, std::memory_order_acquire);
}

// Claims consecutive slots, the first at a multiple of `alignment` bytes. kSlots: there is no room.
size_t ClaimSlots(size_t count, size_t alignment) {
  size_t first = 0;
  while (first + count <= kSlots) {
    if ((reinterpret_cast<uintptr_t>(Address(first)) & (alignment - 1)) != 0) {
      first++;
      continue;
    }
    size_t claimed = 0;
    while (claimed < count && Claim(first + claimed)) claimed++;
    if (claimed == count) return first;
    SetSlots(first, claimed, Slot::kFree);
    first += claimed + 1;
  }
  return kSlots;
}

// Maps `bytes` at the beginning of `count` new slots, which stay claimed. nullptr: there is no room.
char* OpenSlots(size_t bytes, size_t count, size_t alignment, MapKind kind) {
  ChooseRange();
  for (;;) {
    const size_t first = ClaimSlots(count, alignment);
    if (first == kSlots) return nullptr;
    const MapResult result = MapAt(Address(first), bytes, kind);
    if (result == MapResult::kMapped) return Address(first);
    SetSlots(first, count, result == MapResult::kOccupied ? Slot::kOthers : Slot::kFree);
    if (result == MapResult::kRefused) return nullptr;
  }
}

size_t MappedBytes(size_t usable) { return RoundUp(usable, kPageSize); }

// The slots of a huge sample. The page behind the sample stays free, so that its mapping is never joined with the
// mapping of the next slot: unmapping a part of a mapping takes an additional mapping.
size_t HugeSlots(size_t bytes) { return RoundUp(bytes + kPageSize, kChunkSize) / kChunkSize; }

void CountBytes(int64_t bytes) {
  AddToFigure(&heaptap_statistics::mapped, bytes);
  AddToFigure(&heaptap_statistics::active, bytes);
}

// Unmaps the memory at the beginning of claimed slots.
void CloseSlots(size_t first, size_t bytes) {
  void* memory = Address(first);
  const bool is_unmapped = Unmap(memory, bytes);
  if (!is_unmapped) DiscardPages(memory, bytes);
  SetSlots(first, HugeSlots(bytes), is_unmapped ? Slot::kFree : Slot::kOthers);
}

}  // namespace

bool IsOwn(const void* pointer) {
  HEAPTAP_ASSERT(IsInRange(pointer));
  return slots[SlotOf(pointer)].load(std::memory_order_acquire) == Slot::kOwn;
}

void* MapChunkMemory(size_t size) {
  HEAPTAP_ASSERT(size <= kChunkSize && size % kPageSize == 0 && Mutex::Holds(LockRank::kUnits));
  char* memory = OpenSlots(size, 1, kChunkSize, MapKind::kMemory);
  if (memory != nullptr) SetSlots(SlotOf(memory), 1, Slot::kOwn);
  return memory;
}

void* TakeHugeSample(size_t usable, size_t alignment, uint64_t serial) {
  HEAPTAP_ASSERT(IsPowerOfTwo(alignment));
  if (usable > kBytes) return nullptr;
  const size_t bytes = MappedBytes(usable);
  const size_t count = HugeSlots(bytes);
  char* memory = OpenSlots(bytes, count, alignment, MapKind::kChargedMemory);
  if (memory == nullptr) return nullptr;
  CountBytes(static_cast<int64_t>(bytes));
  const size_t first = SlotOf(memory);
  huge_samples[first] = {usable, serial, bytes};
  SetSlots(first, count, Slot::kOwn);
  return memory;
}

HugeSample* FindHugeSample(const void* pointer) {
  HEAPTAP_ASSERT(IsOwn(pointer));
  HugeSample* sample = &huge_samples[SlotOf(pointer)];
  const bool begins = (reinterpret_cast<uintptr_t>(pointer) & (kChunkSize - 1)) == 0;
  return begins && sample->bytes != 0 ? sample : nullptr;
}

void ReturnHugeSample(HugeSample* sample) {
  const size_t first = static_cast<size_t>(sample - huge_samples);
  const size_t bytes = sample->bytes;
  SetSlots(first, HugeSlots(bytes), Slot::kClaimed);
  *sample = {};
  CountBytes(-static_cast<int64_t>(bytes));
  CloseSlots(first, bytes);
}

HugeMove::HugeMove(HugeSample* from, size_t usable) : from_(from), usable_(usable), target_(nullptr) {
  void* source = Address(static_cast<size_t>(from - huge_samples));
  // The last page is left out: IsOneMapping needs a mapped page behind the addresses.
  if (usable > kBytes || !IsOneMapping(source, from->bytes - kPageSize)) return;
  const size_t bytes = MappedBytes(usable);
  target_ = OpenSlots(bytes, HugeSlots(bytes), kChunkSize, MapKind::kMemory);
}

void* HugeMove::Finish(uint64_t serial) {
  const size_t old_first = static_cast<size_t>(from_ - huge_samples);
  const size_t old_bytes = from_->bytes;
  const size_t first = SlotOf(target_);
  const size_t bytes = MappedBytes(usable_);
  if (!MoveMapping(Address(old_first), old_bytes, bytes, target_)) {
    SetSlots(first, HugeSlots(bytes), Slot::kFree);
    return nullptr;
  }
  CountBytes(static_cast<int64_t>(bytes) - static_cast<int64_t>(old_bytes));
  *from_ = {};
  SetSlots(old_first, HugeSlots(old_bytes), Slot::kFree);
  huge_samples[first] = {usable_, serial, bytes};
  SetSlots(first, HugeSlots(bytes), Slot::kOwn);
  return target_;
}

}  // namespace heaptap
