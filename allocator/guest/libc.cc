// SPDX-License-Identifier: Apache-2.0
//
// The slow paths of libc's functions, and the functions that have no fast path.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "allocator/api/symbols.h"
#include "allocator/core/size_class.h"
#include "allocator/guest/host.h"
#include "allocator/guest/move.h"
#include "allocator/guest/range.h"
#include "allocator/guest/samples.h"
#include "allocator/guest/slow.h"
#include "allocator/guest/start.h"
#include "allocator/guest/thread.h"

using heaptap::Charge;
using heaptap::ChargedSize;
using heaptap::host;
using heaptap::IsPowerOfTwo;
using heaptap::ServedByHost;
using heaptap::TakeSample;

namespace {

// Whether the host's realloc with size 0 frees the block and returns nullptr.
bool DoesSizeZeroFree() {
  enum : uint8_t { kUnknown, kFrees, kAllocates };
  static constinit std::atomic<uint8_t> answer;
  if (answer.load(std::memory_order_relaxed) == kUnknown) {
    void* block = host.malloc(1);
    if (block == nullptr) return false;
    void* after = host.realloc(block, 0);
    if (after != nullptr) host.free(after);
    answer.store(after == nullptr ? kFrees : kAllocates, std::memory_order_relaxed);
  }
  return answer.load(std::memory_order_relaxed) == kFrees;
}

// The sample for an aligned allocation. nullptr: the allocation is not a sample; the host serves it, and checks the
// arguments too.
void* TakeAlignedSample(size_t alignment, size_t size) {
  if (!Charge(ChargedSize(size, alignment)) || !IsPowerOfTwo(alignment)) return nullptr;
  return TakeSample(size, {.alignment = alignment});
}

}  // namespace

void* heaptap::SlowMalloc(size_t size) {
  if (void* sample = TakeSample(size)) return sample;
  return ServedByHost(host.malloc(size));
}

void* heaptap::SlowCalloc(size_t count, size_t size) {
  size_t bytes;
  const bool fits = !__builtin_mul_overflow(count, size, &bytes);
  if (void* sample = fits ? TakeSample(bytes, {.zero = true}) : nullptr) return sample;
  return ServedByHost(host.calloc(count, size));
}

void* heaptap::SlowRealloc(void* pointer, size_t size) {
  StartGuest();
  if (pointer != nullptr && size == 0 && DoesSizeZeroFree()) return host.realloc(pointer, size);
  void* sample = TakeSample(size);
  if (sample == nullptr) return ServedByHost(host.realloc(pointer, size));
  if (pointer == nullptr) return sample;
  if (void* moved = MoveToSample(pointer, sample, size)) return moved;
  FreeSample(sample);
  return nullptr;
}

void* heaptap::ReallocSample(void* pointer, size_t size) {
  StartGuest();
  if (size == 0 && DoesSizeZeroFree()) {
    FreeSample(pointer);
    return nullptr;
  }
  return ResizeSample(pointer, size);
}

HEAPTAP_C_EXPORT void* __libc_realloc(void* pointer, size_t size) {
  if (heaptap::IsInRange(pointer)) return heaptap::ReallocSample(pointer, size);
  return host.libc_realloc(pointer, size);
}

// glibc's function calls realloc, which would charge the allocation again.
HEAPTAP_C_EXPORT void* reallocarray(void* pointer, size_t count, size_t size) {
  size_t bytes;
  if (!__builtin_mul_overflow(count, size, &bytes)) return realloc(pointer, bytes);
  errno = ENOMEM;
  return nullptr;
}

HEAPTAP_C_EXPORT void* memalign(size_t alignment, size_t size) {
  if (void* sample = TakeAlignedSample(alignment, size)) return sample;
  return ServedByHost(host.memalign(alignment, size));
}

HEAPTAP_C_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  if (void* sample = TakeAlignedSample(alignment, size)) return sample;
  return ServedByHost(host.aligned_alloc(alignment, size));
}

HEAPTAP_C_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  void* sample = alignment % sizeof(void*) == 0 ? TakeAlignedSample(alignment, size) : nullptr;
  if (sample == nullptr) {
    const int error = host.posix_memalign(result, alignment, size);
    ServedByHost(error == 0 ? *result : nullptr);
    return error;
  }
  *result = sample;
  return 0;
}

HEAPTAP_C_EXPORT void* valloc(size_t size) {
  if (void* sample = TakeAlignedSample(heaptap::kPageSize, size)) return sample;
  return ServedByHost(host.valloc(size));
}

HEAPTAP_C_EXPORT void* pvalloc(size_t size) {
  const size_t pages = heaptap::RoundUp(size, heaptap::kPageSize);
  void* sample = size <= heaptap::kMaximumRequest ? TakeAlignedSample(heaptap::kPageSize, pages) : nullptr;
  return sample != nullptr ? sample : ServedByHost(host.pvalloc(size));
}
