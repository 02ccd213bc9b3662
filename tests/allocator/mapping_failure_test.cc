// SPDX-License-Identifier: Apache-2.0
//
// The system refuses memory, at each of the calls that ask for it: an allocation fails with ENOMEM and leaves all as it
// was, or does without. Nothing is lost, and all goes on when there is memory again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/platform/system.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {

// The linker sends the allocator's calls of the functions without a prefix here (--wrap).
void* RealMapAligned(size_t size, size_t alignment, size_t prefix) asm("__real__ZN7heaptap10MapAlignedEmmm");
bool RealResizeMapping(void* address, size_t old_size, size_t size) asm("__real__ZN7heaptap13ResizeMappingEPvmm");
bool RealMoveMapping(void* address, size_t old_size, size_t size,
                     void* target) asm("__real__ZN7heaptap11MoveMappingEPvmmS0_");
void* MapOrFail(size_t size, size_t alignment, size_t prefix) asm("__wrap__ZN7heaptap10MapAlignedEmmm");
bool ResizeOrFail(void* address, size_t old_size, size_t size) asm("__wrap__ZN7heaptap13ResizeMappingEPvmm");
bool MoveOrFail(void* address, size_t old_size, size_t size,
                void* target) asm("__wrap__ZN7heaptap11MoveMappingEPvmmS0_");

namespace {

// Which calls fail, by their number from 1: none, one, or all from one on.
int calls;
int first_failure;
int last_failure;

bool Fails() {
  calls++;
  return first_failure <= calls && calls <= last_failure;
}

}  // namespace

void* MapOrFail(size_t size, size_t alignment, size_t prefix) {
  return Fails() ? nullptr : RealMapAligned(size, alignment, prefix);
}
bool ResizeOrFail(void* address, size_t old_size, size_t size) {
  return !Fails() && RealResizeMapping(address, old_size, size);
}
bool MoveOrFail(void* address, size_t old_size, size_t size, void* target) {
  if (!Fails()) return RealMoveMapping(address, old_size, size, target);
  Unmap(target, size);
  return false;
}

namespace {

using testing::ExpectInNewProcess;
using testing::IsFilled;
using testing::kMiB;
using testing::ReadBooks;

constexpr unsigned char kFill = 0x33;

// Ends the process with a line if something is not as it should be.
void Require(bool condition, const char* what, int line = __builtin_LINE()) {
  if (condition) return;
  fprintf(stderr, "failing call %d to %d: %s, line %d\n", first_failure, last_failure, what, line);
  _exit(1);
}

// The ends of a block: to fill all of it would take most of the time.
size_t EndBytes(size_t usable) { return std::min<size_t>(usable, 4096); }

bool HasEnds(const void* pointer, size_t usable, unsigned char value) {
  return IsFilled(pointer, 0, EndBytes(usable), value) && IsFilled(pointer, usable - EndBytes(usable), usable, value);
}

void* Checked(void* pointer, size_t size) {
  if (pointer == nullptr) {
    Require(errno == ENOMEM, "errno of an allocation that failed");
    return nullptr;
  }
  const size_t usable = UsableSize(pointer);
  Require(usable >= size, "usable size");
  memset(pointer, kFill, EndBytes(usable));
  memset(static_cast<char*>(pointer) + usable - EndBytes(usable), kFill, EndBytes(usable));
  return pointer;
}

// Every kind of request, moves and changes in place.
std::vector<void*> Work() {
  std::vector<void*> blocks;
  for (size_t size : {size_t{8}, size_t{2000}, size_t{5000}, size_t{32768}, size_t{40000}, 15 * kMiB, 20 * kMiB}) {
    blocks.push_back(Checked(Allocate(size), size));
    void* zeroed = AllocateZeroed(1, size);
    Require(zeroed == nullptr || HasEnds(zeroed, size, 0), "zeroed memory");
    blocks.push_back(Checked(zeroed, size));
    blocks.push_back(Checked(AllocateAligned(64 * kMiB, size), size));
  }
  for (void*& block : blocks) {
    if (block == nullptr) continue;
    const size_t usable = UsableSize(block);
    void* moved = Reallocate(block, usable + (usable < kMiB ? 50000 : 10 * kMiB));
    if (moved == nullptr) Require(errno == ENOMEM && UsableSize(block) == usable, "a block that could not move");
    if (moved != nullptr) block = moved;
    Require(HasEnds(block, usable, kFill), "contents of a block that was to grow");
    if (ResizeInPlace(block, 100000, 0, {}) < 100000) ResizeInPlace(block, 40 * kMiB, 0, {});
  }
  return blocks;
}

// The number of calls that it makes.
int Try(int first, int last) {
  calls = 0;
  first_failure = first;
  last_failure = last;
  testing::SamplingOn on(16);
  std::vector<void*> blocks = Work();
  const int made = calls;
  first_failure = last_failure = 0;
  for (void* block : blocks) Free(block);
  Trim();
  Require(ReadBooks().live == 0 && ReadBooks().errors == 0, "the books");
  Require(heaptap_control.statistics.large == 0, "large");
  Require(heaptap_control.statistics.sampled_objects == 0, "sampled_objects");
  blocks = Work();
  for (void* block : blocks) {
    Require(block != nullptr, "there is memory again");
    Free(block);
  }
  Require(ReadBooks().live == 0 && ReadBooks().errors == 0, "the books afterwards");
  return made;
}

// In a child of a process that has allocated nothing yet, so that the first calls are those of its start.
bool IsWell(int first, int last) {
  const pid_t child = fork();
  if (child == 0) {
    Try(first, last);
    _exit(0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

constexpr int kLeastCalls = 20;
constexpr int kForever = INT32_MAX;

TEST(MappingFailure, AtEachCall) {
  ExpectInNewProcess([]() -> std::string {
    // As many as there are without a failure, and some more that failures cause.
    for (int call = 1; call <= 2 * kLeastCalls; call++) {
      if (!IsWell(call, call)) return "call " + std::to_string(call) + " alone";
      if (!IsWell(call, kForever)) return "all calls from " + std::to_string(call) + " on";
    }
    const int made = Try(0, 0);
    return made >= kLeastCalls && made <= 2 * kLeastCalls ? "" : std::to_string(made) + " calls";
  });
}

TEST(MappingFailure, ReallocInPlaceNeedsNoMemory) {
  ExpectInNewProcess([]() -> std::string {
    constexpr size_t kSize = 1000;
    void* block = Checked(Allocate(kSize), kSize);
    calls = 0;
    first_failure = 1;
    last_failure = kForever;
    while (Allocate(50000) != nullptr) {
    }
    testing::SamplingOn on(0);
    errno = 0;
    if (Reallocate(block, kSize) != block) return "it moved, or failed";
    return errno == 0 ? "" : "errno";
  });
}

}  // namespace
}  // namespace heaptap
