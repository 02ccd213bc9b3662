// SPDX-License-Identifier: Apache-2.0
//
// The operating system, by direct system calls: libc's functions may be interposed by code that allocates,
// and they write errno, which free must keep.
//
// Nothing here touches errno. Any thread may call any function at any time, also before constructors run and in a
// signal handler.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_SYSTEM_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_SYSTEM_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

extern "C" {
// A program may set this function to receive messages instead of stderr. It is called with nullptr and the text, and
// must not allocate.
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

inline bool Failed(long result) { return static_cast<unsigned long>(result) > -4096UL; }

// Maps zeroed, private, writable memory: [result - prefix, result + size), result a multiple of `alignment`.
// nullptr: out of memory. Where RLIMIT_AS is tight it gets by with little more address space than it returns.
// REQUIRES: size and prefix are multiples of the page size; alignment is a power of two, at least the page size.
void* MapAligned(size_t size, size_t alignment, size_t prefix = 0);

enum class MapResult {
  kMapped,
  kOccupied,  // something else is mapped there
  kRefused,   // out of memory, or there are no such addresses
};
enum class MapKind {
  kMemory,         // like MapAligned
  kChargedMemory,  // the system refuses more than the machine has, as it does for mmap(2) of a program
};
// Maps zeroed, private memory at exactly these addresses. REQUIRES: both are multiples of the page size.
MapResult MapAt(void* address, size_t size, MapKind kind);

// False: the system refused, and the mapping stays. That can happen if a part of a mapping is unmapped, and the process
// has as many mappings as it may have.
bool Unmap(void* address, size_t size);

// Replaces the pages of a mapping, or a part of it, by new ones like those of MapAligned, whatever the program has done
// to the old ones (mprotect, mlock, madvise). False: as for Unmap.
bool RenewPages(void* address, size_t size);

// Whether these addresses are one mapping. Where a program has changed the protection or another property of a part,
// they are not. REQUIRES: the page behind them is mapped too.
bool IsOneMapping(void* address, size_t size);

// Resizes the mapping at `address` without moving it. False: impossible; the mapping is unchanged.
bool ResizeMapping(void* address, size_t old_size, size_t new_size);

// Moves the pages of a mapping to `target`, and replaces the mapping there. False: the system refused, and there is no
// mapping at `target` any more. The system refuses if the old addresses are not one mapping. REQUIRES: `target` is
// mapped with `new_size` bytes, and the caller uses none of them.
bool MoveMapping(void* address, size_t old_size, size_t new_size, void* target);

// Unlocks pages that mlockall has locked, so that they no longer count towards RLIMIT_MEMLOCK.
void UnlockPages(void* address, size_t size);

// Returns the pages to the system; they read as zero afterwards. False: the system refused, and the contents stay.
bool DiscardPages(void* address, size_t size);

// Tells the kernel not to back the range with huge pages, or to do so. No effect on kernels without huge pages.
void ForbidHugePages(void* address, size_t size);
void AskForHugePages(void* address, size_t size);

// How many bytes of the range are resident, in whole pages. An upper bound, since pages that were only read count too.
// Unmapped addresses do not count.
size_t ResidentBytes(const void* address, size_t size);

uint32_t ProcessId();

// How many threads the process has. 0: not known, because /proc is not mounted.
uint64_t ThreadCount();

// Owns a file descriptor, or none: `number` may be the result of a failed system call. Not thread safe.
class FileDescriptor {
 public:
  explicit FileDescriptor(long number) : number_(static_cast<int>(number)) {}
  ~FileDescriptor() { Reset(-1); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool valid() const { return number_ >= 0; }
  int number() const { return number_; }
  // Closes it, and takes over another.
  void Reset(long number) {
    if (number_ >= 0) SystemCall(SYS_close, number_);
    number_ = static_cast<int>(number);
  }

 private:
  int number_;
};

// The digits of the largest uint64_t.
inline constexpr size_t kMaxDigits = 20;
// Writes the number in decimal to the end of `digits`. Returns the first digit; there is no NUL.
char* FormatDecimal(uint64_t number, char (&digits)[kMaxDigits]);

// How much the process may map, in bytes: the lower of RLIMIT_AS and RLIMIT_DATA. UINT64_MAX: no limit.
uint64_t MappingLimit();

// A message of one or more lines, built in place without allocation. A text that is too long is cut, and its last line
// still ends with a newline.
class Message {
 public:
  Message& operator<<(const char* text);
  Message& operator<<(uint64_t number);
  // 0x and 16 digits.
  Message& operator<<(const void* address);
  // `length` bytes of text.
  Message& Append(const char* text, size_t length);
  // The text so far, NUL-terminated.
  const char* text();
  // Passes the text to malloc_message, or writes it to stderr.
  void Print();

 private:
  char buffer_[1024];
  size_t length_ = 0;
  bool cut_ = false;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_SYSTEM_H_
