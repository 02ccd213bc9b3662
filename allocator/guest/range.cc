// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/range.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>

#include "allocator/core/chunk_memory.h"
#include "allocator/core/control.h"
#include "allocator/core/slab.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap {

namespace {

// The beginning of the range while there is none: no address of a process is behind it.
constexpr uintptr_t kNoRange = uintptr_t{1} << 63;

}  // namespace

constinit GuestRange guest_range{kNoRange, 0};

namespace {

// More than any machine has memory. A process has 128 TiB of addresses.
constexpr size_t kMostBytes = size_t{1} << 40;
constexpr size_t kLeastBytes = 2 * kChunkSize;
// Where address space is limited, the range takes one part in this many of it.
constexpr uint64_t kLimitShare = 8;
constexpr size_t kSlots = kMostBytes / kChunkSize;

// Whether a slot is taken. One byte each: a byte is claimed by one instruction.
constinit std::atomic<bool> taken[kSlots];
// By the first slot.
constinit HugeSample huge_samples[kSlots]{};

bool Failed(long result) { return static_cast<unsigned long>(result) > -4096UL; }

uintptr_t Begin() { return guest_range.begin.load(std::memory_order_acquire); }

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

// Inaccessible addresses, aligned to a slot. 0: there are not so many.
uintptr_t ReserveAddresses(size_t bytes) {
  const size_t wide = bytes + kChunkSize;
  const long result =
      SystemCall(SYS_mmap, 0, static_cast<long>(wide), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (Failed(result)) return 0;
  const uintptr_t begin = static_cast<uintptr_t>(result);
  const uintptr_t aligned = RoundUp(begin, kChunkSize);
  if (aligned != begin) Unmap(reinterpret_cast<void*>(begin), aligned - begin);
  const uintptr_t end = begin + wide;
  if (aligned + bytes != end) Unmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
  return aligned;
}

size_t WantedBytes() {
  const uint64_t share = AddressSpaceLimit() / kLimitShare;
  return share < kMostBytes ? share & ~(kChunkSize - 1) : kMostBytes;
}

// False: the system refuses a range. Several threads may try at once. They agree on the size first, and all ranges but
// one go back.
bool HasRange() {
  while (Begin() == kNoRange) {
    size_t bytes = guest_range.bytes.load(std::memory_order_relaxed);
    if (bytes == 0) {
      // No address is in the range as long as it has no beginning.
      const size_t wanted = WantedBytes();
      if (wanted < kLeastBytes) return false;
      guest_range.bytes.compare_exchange_strong(bytes, wanted, std::memory_order_relaxed);
      continue;
    }
    const uintptr_t begin = ReserveAddresses(bytes);
    if (begin == 0) {
      if (bytes / 2 < kLeastBytes) return false;
      guest_range.bytes.compare_exchange_strong(bytes, bytes / 2 & ~(kChunkSize - 1), std::memory_order_relaxed);
      continue;
    }
    KeepRequestedSizes(true);
    uintptr_t before = kNoRange;
    if (!guest_range.begin.compare_exchange_strong(before, begin, std::memory_order_acq_rel)) {
      Unmap(reinterpret_cast<void*>(begin), bytes);
    }
  }
  return true;
}

char* Address(size_t slot) { return reinterpret_cast<char*>(Begin() + slot * kChunkSize); }

size_t SlotOf(const void* pointer) { return (reinterpret_cast<uintptr_t>(pointer) - Begin()) / kChunkSize; }

void LeaveSlots(size_t first, size_t count) {
  // Release: the next owner finds the memory as this one has left it.
  for (size_t i = first; i < first + count; i++) taken[i].store(false, std::memory_order_release);
}

// Claims consecutive slots, the first at a multiple of `alignment` bytes. kSlots: there is no room.
size_t ClaimSlots(size_t count, size_t alignment) {
  const size_t slots = guest_range.bytes.load(std::memory_order_relaxed) / kChunkSize;
  size_t first = 0;
  while (first + count <= slots) {
    if ((reinterpret_cast<uintptr_t>(Address(first)) & (alignment - 1)) != 0) {
      first++;
      continue;
    }
    size_t claimed = 0;
    while (claimed < count && !taken[first + claimed].exchange(true, std::memory_order_acquire)) claimed++;
    if (claimed == count) return first;
    LeaveSlots(first, claimed);
    first += claimed + 1;
  }
  return kSlots;
}

bool Open(char* address, size_t bytes) {
  return SystemCall(SYS_mprotect, reinterpret_cast<long>(address), static_cast<long>(bytes), PROT_READ | PROT_WRITE) ==
         0;
}

// The memory goes back to the system, and the addresses stay.
void Close(char* address, size_t bytes) {
  SystemCall(SYS_mmap, reinterpret_cast<long>(address), static_cast<long>(bytes), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1);
}

void ReportFull() {
  static constinit std::atomic<bool> is_reported;
  if (is_reported.exchange(true, std::memory_order_relaxed)) return;
  Message message;
  message << "<heaptap>: libheaptap-guest.so has no address space for samples: some allocations are not recorded\n";
  message.Print();
}

// Opens `bytes` of new slots. nullptr: there is no room.
char* OpenSlots(size_t bytes, size_t alignment) {
  const size_t count = RoundUp(bytes, kChunkSize) / kChunkSize;
  const size_t first = HasRange() ? ClaimSlots(count, alignment) : kSlots;
  if (first != kSlots && Open(Address(first), bytes)) return Address(first);
  if (first != kSlots) LeaveSlots(first, count);
  ReportFull();
  return nullptr;
}

}  // namespace

void* MapChunkMemory(size_t size) { return OpenSlots(size, kChunkSize); }

void* TakeHugeSample(size_t usable, size_t alignment, uint64_t serial) {
  if (usable > kMostBytes) return nullptr;
  const size_t bytes = RoundUp(usable, kPageSize);
  char* memory = OpenSlots(bytes, alignment);
  if (memory == nullptr) return nullptr;
  AddToFigure(&heaptap_statistics::mapped, static_cast<int64_t>(bytes));
  AddToFigure(&heaptap_statistics::active, static_cast<int64_t>(bytes));
  huge_samples[SlotOf(memory)] = {usable, serial, bytes};
  return memory;
}

HugeSample* FindHugeSample(const void* pointer) {
  HugeSample* sample = &huge_samples[SlotOf(pointer)];
  const bool begins = (reinterpret_cast<uintptr_t>(pointer) & (kChunkSize - 1)) == 0;
  return begins && sample->bytes != 0 ? sample : nullptr;
}

void ReturnHugeSample(HugeSample* sample) {
  const size_t slot = static_cast<size_t>(sample - huge_samples);
  const size_t bytes = sample->bytes;
  *sample = {};
  AddToFigure(&heaptap_statistics::mapped, -static_cast<int64_t>(bytes));
  AddToFigure(&heaptap_statistics::active, -static_cast<int64_t>(bytes));
  Close(Address(slot), bytes);
  LeaveSlots(slot, RoundUp(bytes, kChunkSize) / kChunkSize);
}

}  // namespace heaptap
