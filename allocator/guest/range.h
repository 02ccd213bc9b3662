// SPDX-License-Identifier: Apache-2.0
//
// The range of addresses of a guest's blocks: samples, and the few blocks that are needed before the host is found. All
// chunks lie in it, and so do samples that are too large for a chunk. So free tells these blocks from the host's by one
// comparison.
//
//   slot    32 MiB of the range, aligned: a chunk, or a part of a huge sample
//
// The range is a number only. It is chosen when the first block is needed, where the kernel maps nothing unless it is
// asked to, and nothing is mapped there until a slot is taken. So the range takes no address space: it counts towards
// no limit (RLIMIT_AS, RLIMIT_MEMLOCK), and no core file and no mlockall contains it. If a program maps something
// there, the program keeps it, and these addresses are not the guest's.
//
// Any thread, any time. There is no lock, so a fork finds nothing half done.
#ifndef HEAPTAP_ALLOCATOR_GUEST_RANGE_H_
#define HEAPTAP_ALLOCATOR_GUEST_RANGE_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace heaptap {

struct GuestRange {
  std::atomic<uintptr_t> begin;
  std::atomic<size_t> bytes;
};

extern constinit GuestRange guest_range __attribute__((visibility("hidden")));

// Whether the address is in the range: a block of the guest, or something that the program has mapped there (IsOwn).
// False for nullptr. The asm is two relaxed loads; the compiler would not make them operands of the subtraction and the
// comparison.
[[gnu::always_inline]] inline bool IsInRange(const void* pointer) {
  uintptr_t offset = reinterpret_cast<uintptr_t>(pointer);
  bool is_inside;
  asm("subq %2, %0\n\tcmpq %3, %0" : "+r"(offset), "=@ccb"(is_inside) : "m"(guest_range.begin), "m"(guest_range.bytes));
  return is_inside;
}

// Whether the guest's memory is at this address. False: it is the program's. REQUIRES: IsInRange(pointer).
bool IsOwn(const void* pointer);

inline bool IsOfGuest(const void* pointer) { return IsInRange(pointer) && IsOwn(pointer); }

// A sample with slots of its own.
struct HugeSample {
  size_t usable;    // bytes
  uint64_t serial;  // of the sample
  size_t bytes;     // of the memory; 0: no huge sample begins here
};

// Maps memory that reads as zero for a sample, at a multiple of `alignment`, and fills in the sample's description. The
// system grants what it would grant the program. nullptr: the range or the memory is used up. REQUIRES: `alignment` is
// a power of two.
void* TakeHugeSample(size_t usable, size_t alignment, uint64_t serial);

// The description of the huge sample that begins at `pointer`. nullptr: none does. REQUIRES: IsOwn(pointer).
HugeSample* FindHugeSample(const void* pointer);

// Frees the memory of a huge sample.
void ReturnHugeSample(HugeSample* sample);

// New slots for the pages of a huge sample that is resized.
class HugeMove {
 public:
  // Takes the new slots. The pages do not move yet.
  HugeMove(HugeSample* from, size_t usable);
  HugeMove(const HugeMove&) = delete;
  HugeMove& operator=(const HugeMove&) = delete;

  // False: the sample cannot move. Nothing has changed.
  explicit operator bool() const { return target_ != nullptr; }

  // Moves the pages and frees the old slots. nullptr: the system refuses, and the sample is where it was.
  void* Finish(uint64_t serial);

 private:
  HugeSample* from_;
  size_t usable_;
  char* target_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_RANGE_H_
