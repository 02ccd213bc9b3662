// SPDX-License-Identifier: Apache-2.0
//
// The operating system, by system calls of our own and the vDSO: the libc functions may be interposed by somebody who
// allocates, and they write errno, which free must keep. Nothing here touches errno; every function may be called by
// any thread at any time, before constructors and in a signal handler too.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_SYSTEM_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_SYSTEM_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {
// Where messages go if the program has set it, called with nullptr and a text; nullptr: to stderr. It must not
// allocate.
extern __attribute__((weak, visibility("default"))) void (*malloc_message)(void* opaque, const char* text);
}

namespace heaptap {

// Raw system call; a result in [-4095, -1] is a negative errno value.
inline long SystemCall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

// Maps zeroed, private, writable memory: [result - prefix, result + size), result a multiple of `alignment`.
// nullptr if there is no room. Needs little more address space than it returns where RLIMIT_AS is tight.
// REQUIRES: size and prefix are multiples of the page size, alignment is a power of two not below it.
void* MapAligned(size_t size, size_t alignment, size_t prefix = 0);

void Unmap(void* address, size_t size);

// Resizes the mapping at `address` without moving it.
bool ResizeMapping(void* address, size_t old_size, size_t new_size);

// Moves the pages of a mapping onto `target`, which is mapped and is replaced.
bool MoveMapping(void* address, size_t old_size, size_t new_size, void* target);

// Gives the pages back; they read as zero afterwards. False if the system refused: then they keep their contents.
bool DiscardPages(void* address, size_t size);

// Keeps the kernel from backing the range with huge pages, or asks it to, if it knows how.
void ForbidHugePages(void* address, size_t size);
void AskForHugePages(void* address, size_t size);

// How many bytes of the range the system holds in memory, in whole pages; an upper bound, since pages that were only
// read count too. What is not mapped does not count.
size_t ResidentBytes(const void* address, size_t size);

// Finds out how the clock is read without a system call. Before that it is read with one. Once.
void StartClock();

// Nanoseconds of the same clock as Milliseconds.
uint64_t Nanoseconds();

// Milliseconds of a monotonic clock; `Coarse` is cheaper and a few milliseconds old.
uint64_t Milliseconds();
uint64_t CoarseMilliseconds();

uint32_t ProcessId();

// RLIMIT_AS in bytes; UINT64_MAX if there is none.
uint64_t AddressSpaceLimit();

// A message of one or more lines, built in place without allocation; too long a text is cut, and ends its line.
class Message {
 public:
  Message& operator<<(const char* text);
  Message& operator<<(uint64_t number);
  // `length` bytes of text.
  Message& Append(const char* text, size_t length);
  // The text so far, with a NUL at its end.
  const char* text();
  // Hands it to malloc_message, or writes it to stderr.
  void Print();

 private:
  char buffer_[1024];
  size_t length_ = 0;
  bool cut_ = false;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_SYSTEM_H_
