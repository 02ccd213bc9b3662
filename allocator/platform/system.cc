// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/system.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "allocator/platform/assert.h"
#include "allocator/platform/numbers.h"

extern "C" {
void (*malloc_message)(void* opaque, const char* text);
}

namespace heaptap {
namespace {

constexpr int kProtection = PROT_READ | PROT_WRITE;
// Few programs touch all of the memory that is mapped for them, so the system must not reserve swap space for it.
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer must see memory being mapped and unmapped. Otherwise it reports accesses to memory that was unmapped
// and mapped again as races.
long MapAny(uintptr_t hint, size_t size, int flags) {
  const int saved = errno;
  void* result = mmap(reinterpret_cast<void*>(hint), size, kProtection, flags, -1, 0);
  const int error = errno;
  errno = saved;
  return result == MAP_FAILED ? -error : reinterpret_cast<long>(result);
}

bool UnmapRange(uintptr_t address, size_t size) {
  const int saved = errno;
  const bool is_unmapped = size == 0 || munmap(reinterpret_cast<void*>(address), size) == 0;
  errno = saved;
  return is_unmapped;
}
#else
long MapAny(uintptr_t hint, size_t size, int flags) {
  return SystemCall(SYS_mmap, static_cast<long>(hint), static_cast<long>(size), kProtection, flags, -1);
}

bool UnmapRange(uintptr_t address, size_t size) {
  return size == 0 || SystemCall(SYS_munmap, static_cast<long>(address), static_cast<long>(size)) == 0;
}
#endif

uintptr_t Map(uintptr_t hint, size_t size, int flags) {
  const long result = MapAny(hint, size, kFlags | flags);
  return Failed(result) ? 0 : static_cast<uintptr_t>(result);
}

// Whether the word is at this address, which may be unmapped. A futex wait with a time limit of zero ends with
// ETIMEDOUT if the word is there, and with another error if it is not.
bool IsWordAt(const void* address, uint32_t word) {
  const timespec no_time{};
  return SystemCall(SYS_futex, reinterpret_cast<long>(address), FUTEX_WAIT_PRIVATE, word,
                    reinterpret_cast<long>(&no_time)) == -ETIMEDOUT;
}

// Maps `total` bytes, `prefix` of which lie before the result: `first` or a lower multiple of `alignment`. Tries
// `attempts` addresses.
void* MapBelow(uintptr_t first, size_t total, size_t alignment, size_t prefix, int attempts) {
  uintptr_t candidate = first;
  for (int i = 0; i < attempts && candidate > alignment + prefix; i++, candidate -= alignment) {
    const uintptr_t got = Map(candidate - prefix, total, MAP_FIXED_NOREPLACE);
    if (got == candidate - prefix) return reinterpret_cast<void*>(candidate);
    if (got != 0) UnmapRange(got, total);  // kernels before 4.17 treat the address as a hint
  }
  return nullptr;
}

// Like MapAligned, by cutting a larger mapping.
void* MapWithMargin(size_t size, size_t alignment, size_t prefix) {
  const size_t total = size + prefix;
  const uintptr_t wide = total + alignment < total ? 0 : Map(0, total + alignment, 0);
  if (wide == 0) return nullptr;
  const uintptr_t result = RoundUp(wide + prefix, alignment);
  UnmapRange(wide, result - prefix - wide);
  UnmapRange(result + size, wide + total + alignment - (result + size));
  return reinterpret_cast<void*>(result);
}

}  // namespace

void* MapAligned(size_t size, size_t alignment, size_t prefix) {
  HEAPTAP_ASSERT((size | prefix) % kPageSize == 0 && IsPowerOfTwo(alignment) && alignment >= kPageSize);
  size_t total = size + prefix;
  if (total < size) return nullptr;
  // The kernel places each mapping below the last one, so the next address after an aligned mapping is often aligned.
  uintptr_t start = Map(0, total, 0);
  if (start == 0) return nullptr;
  if (((start + prefix) & (alignment - 1)) == 0) return reinterpret_cast<void*>(start + prefix);
  UnmapRange(start, total);
  // Try aligned addresses below, one by one. If many are taken, a mapping with a margin is the faster way, unless a
  // limit leaves no room for the margin. Where new memory is locked, all of the margin becomes resident.
  constexpr int kNear = 64;
  constexpr int kFar = 256;
  const uintptr_t first = RoundDown(start + prefix, alignment);
  if (void* result = MapBelow(first, total, alignment, prefix, kNear)) return result;
  if (void* result = MapWithMargin(size, alignment, prefix)) return result;
  return MapBelow(first, total, alignment, prefix, kFar);
}

MapResult MapAt(void* address, size_t size, MapKind kind) {
  HEAPTAP_ASSERT((reinterpret_cast<uintptr_t>(address) | size) % kPageSize == 0);
  const int flags = kind == MapKind::kChargedMemory ? kFlags & ~MAP_NORESERVE : kFlags;
  const uintptr_t wanted = reinterpret_cast<uintptr_t>(address);
  const long result = MapAny(wanted, size, flags | MAP_FIXED_NOREPLACE);
  if (result == -EEXIST) return MapResult::kOccupied;
  if (Failed(result)) return MapResult::kRefused;
  if (static_cast<uintptr_t>(result) == wanted) return MapResult::kMapped;
  UnmapRange(static_cast<uintptr_t>(result), size);  // kernels before 4.17 treat the address as a hint
  return MapResult::kOccupied;
}

bool Unmap(void* address, size_t size) { return UnmapRange(reinterpret_cast<uintptr_t>(address), size); }

bool RenewPages(void* address, size_t size) {
  return Map(reinterpret_cast<uintptr_t>(address), size, MAP_FIXED) == reinterpret_cast<uintptr_t>(address);
}

bool IsOneMapping(void* address, size_t size) {
  // The mapping cannot grow over the page behind it, so this call fails. The error tells why: the kernel first checks
  // whether the addresses are one mapping.
  return SystemCall(SYS_mremap, reinterpret_cast<long>(address), static_cast<long>(size),
                    static_cast<long>(size + kPageSize), 0) != -EFAULT;
}

bool ResizeMapping(void* address, size_t old_size, size_t new_size) {
  long result = SystemCall(SYS_mremap, reinterpret_cast<long>(address), static_cast<long>(old_size),
                           static_cast<long>(new_size), 0);
  return result == reinterpret_cast<long>(address);
}

bool MoveMapping(void* address, size_t old_size, size_t new_size, void* target) {
  // Before Linux 6.17 the system unmaps the target before it may refuse. Another thread may then map something there,
  // which must stay. So the target gets a mark.
  const uint32_t mark = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(target) >> kPageShift) | 1;
  *static_cast<volatile uint32_t*>(target) = mark;
  long result = SystemCall(SYS_mremap, reinterpret_cast<long>(address), static_cast<long>(old_size),
                           static_cast<long>(new_size), MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<long>(target));
  if (result == reinterpret_cast<long>(target)) return true;
  if (IsWordAt(target, mark)) Unmap(target, new_size);
  return false;
}

void UnlockPages(void* address, size_t size) {
  SystemCall(SYS_munlock, reinterpret_cast<long>(address), static_cast<long>(size));
}

bool DiscardPages(void* address, size_t size) {
  return SystemCall(SYS_madvise, reinterpret_cast<long>(address), static_cast<long>(size), MADV_DONTNEED) == 0;
}

void ForbidHugePages(void* address, size_t size) {
  SystemCall(SYS_madvise, reinterpret_cast<long>(address), static_cast<long>(size), MADV_NOHUGEPAGE);
}

void AskForHugePages(void* address, size_t size) {
  SystemCall(SYS_madvise, reinterpret_cast<long>(address), static_cast<long>(size), MADV_HUGEPAGE);
}

size_t ResidentBytes(const void* address, size_t size) {
  constexpr size_t kPages = 2048;
  unsigned char pages[kPages];
  uintptr_t begin = RoundDown(reinterpret_cast<uintptr_t>(address), kPageSize);
  uintptr_t end = RoundUp(reinterpret_cast<uintptr_t>(address) + size, kPageSize);
  size_t resident = 0;
  while (begin < end) {
    size_t count = (end - begin) / kPageSize;
    if (count > kPages) count = kPages;
    long result = SystemCall(SYS_mincore, static_cast<long>(begin), static_cast<long>(count * kPageSize),
                             reinterpret_cast<long>(pages));
    for (size_t i = 0; result == 0 && i < count; i++) resident += pages[i] & 1;
    begin += count * kPageSize;
  }
  return resident * kPageSize;
}

uint32_t ProcessId() { return static_cast<uint32_t>(SystemCall(SYS_getpid)); }

uint64_t ThreadCount() {
  // A folder has two links, and this folder has one more for each thread.
  constexpr uint64_t kLinksOfFolder = 2;
  struct stat folder;
  const char* path = "/proc/self/task";
  if (SystemCall(SYS_stat, reinterpret_cast<long>(path), reinterpret_cast<long>(&folder)) != 0) return 0;
  return folder.st_nlink > kLinksOfFolder ? folder.st_nlink - kLinksOfFolder : 0;
}

uint64_t MappingLimit() {
  const auto limit_of = [](int resource) {
    rlimit64 limit{};
    const long result = SystemCall(SYS_prlimit64, 0, resource, 0, reinterpret_cast<long>(&limit));
    return result == 0 ? limit.rlim_cur : UINT64_MAX;
  };
  const uint64_t addresses = limit_of(RLIMIT_AS);
  const uint64_t data = limit_of(RLIMIT_DATA);
  return addresses < data ? addresses : data;
}

char* FormatDecimal(uint64_t number, char (&digits)[kMaxDigits]) {
  char* first = digits + kMaxDigits;
  do {
    *--first = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  return first;
}

Message& Message::operator<<(const char* text) { return Append(text, strlen(text)); }

Message& Message::operator<<(uint64_t number) {
  char digits[kMaxDigits];
  const char* first = FormatDecimal(number, digits);
  return Append(first, static_cast<size_t>(digits + kMaxDigits - first));
}

Message& Message::operator<<(const void* address) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[] = "0x0000000000000000";
  uintptr_t rest = reinterpret_cast<uintptr_t>(address);
  for (size_t i = sizeof(text) - 2; rest != 0; i--, rest >>= 4) text[i] = kDigits[rest & 15];
  return *this << text;
}

Message& Message::Append(const char* text, size_t length) {
  size_t room = sizeof(buffer_) - 1 - length_;
  if (length > room) {
    length = room;
    cut_ = true;
  }
  memcpy(buffer_ + length_, text, length);
  length_ += length;
  return *this;
}

const char* Message::text() {
  buffer_[length_] = '\0';
  return buffer_;
}

void Message::Print() {
  constexpr long kStandardError = 2;
  if (cut_) buffer_[length_ - 1] = '\n';
  void (*write)(void*, const char*) = malloc_message;
  if (write != nullptr) {
    int saved = errno;
    write(nullptr, text());
    errno = saved;
    return;
  }
  SystemCall(SYS_write, kStandardError, reinterpret_cast<long>(buffer_), static_cast<long>(length_));
}

}  // namespace heaptap
