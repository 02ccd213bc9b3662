// SPDX-License-Identifier: Apache-2.0
//
// The slow paths of the functions that only some hosts have: jemalloc's, tcmalloc's and mimalloc's. nallocx, mallctl
// and all others that touch no single block are not here: programs find the host's own.
#include <errno.h>
#include <string.h>

#include "allocator/api/symbols.h"
#include "allocator/guest/host.h"
#include "allocator/guest/move.h"
#include "allocator/guest/range.h"
#include "allocator/guest/samples.h"
#include "allocator/guest/slow.h"
#include "allocator/guest/start.h"
#include "allocator/guest/thread.h"
#include "heaptap/heaptap.h"

using heaptap::Charge;
using heaptap::ChargedSize;
using heaptap::host;
using heaptap::IsOfGuest;
using heaptap::IsPowerOfTwo;
using heaptap::SampleTraits;
using heaptap::ServedByHost;
using heaptap::TakeSample;

namespace {

constexpr int kAlignmentMask = MALLOCX_ZERO - 1;  // the bits of lg(alignment)

// jemalloc serves size 0 as 1.
size_t SizeOf(size_t size) { return size != 0 ? size : 1; }

SampleTraits TraitsOf(int flags) { return {size_t{1} << (flags & kAlignmentMask), (flags & MALLOCX_ZERO) != 0}; }

void* TakeExtendedSample(size_t size, int flags) { return TakeSample(SizeOf(size), TraitsOf(flags)); }

}  // namespace

void* heaptap::SlowTcMalloc(size_t size) {
  if (void* sample = TakeSample(size)) return sample;
  return ServedByHost(host.tc_malloc(size));
}

void* heaptap::SlowTcCalloc(size_t count, size_t size) {
  size_t bytes;
  const bool fits = !__builtin_mul_overflow(count, size, &bytes);
  if (void* sample = fits ? TakeSample(bytes, {.zero = true}) : nullptr) return sample;
  return ServedByHost(host.tc_calloc(count, size));
}

void* heaptap::SlowMallocx(size_t size, int flags) {
  if (void* sample = TakeExtendedSample(size, flags)) return sample;
  return ServedByHost(host.mallocx(size, flags));
}

HEAPTAP_C_EXPORT void* tc_memalign(size_t alignment, size_t size) {
  const bool is_over = Charge(ChargedSize(size, alignment));
  void* sample = is_over && IsPowerOfTwo(alignment) ? TakeSample(size, {.alignment = alignment}) : nullptr;
  return sample != nullptr ? sample : ServedByHost(host.tc_memalign(alignment, size));
}

HEAPTAP_C_EXPORT int tc_posix_memalign(void** result, size_t alignment, size_t size) {
  const bool is_valid = IsPowerOfTwo(alignment) && alignment % sizeof(void*) == 0;
  const bool is_over = Charge(ChargedSize(size, alignment));
  void* sample = is_over && is_valid ? TakeSample(size, {.alignment = alignment}) : nullptr;
  if (sample == nullptr) {
    const int error = host.tc_posix_memalign(result, alignment, size);
    ServedByHost(error == 0 ? *result : nullptr);
    return error;
  }
  *result = sample;
  return 0;
}

HEAPTAP_C_EXPORT void* mi_realloc(void* pointer, size_t size) {
  if (heaptap::IsInRange(pointer)) return heaptap::ReallocSample(pointer, size);
  return host.mi_realloc(pointer, size);
}

namespace {

// Copies a sample to a block of the host, and frees the sample. The rest of the host's block reads as zero. nullptr:
// the host has no memory, and the sample stays.
void* HandOver(void* sample) {
  const size_t usable = heaptap::SampleUsableSize(sample);
  void* block = host.calloc(1, usable);
  if (block == nullptr) return nullptr;
  memcpy(block, sample, usable);
  heaptap::FreeSample(sample);
  return block;
}

// `place` is where the program keeps the pointer. False: no memory.
bool HandOverAt(void* place) {
  void* pointer;
  memcpy(&pointer, place, sizeof(pointer));
  if (!IsOfGuest(pointer)) return true;
  pointer = HandOver(pointer);
  if (pointer == nullptr) return false;
  memcpy(place, &pointer, sizeof(pointer));
  return true;
}

}  // namespace

#define HEAPTAP_RESIZE_OF_HOST(result, entry, name, parameters, arguments) \
  HEAPTAP_C_EXPORT result entry parameters {                               \
    if (IsOfGuest(pointer)) {                                              \
      pointer = HandOver(pointer);                                         \
      if (pointer == nullptr) return nullptr;                              \
    }                                                                      \
    return host.entry arguments;                                           \
  }
HEAPTAP_HOST_RESIZE_FUNCTIONS(HEAPTAP_RESIZE_OF_HOST)

HEAPTAP_C_EXPORT int reallocarr(void* place, size_t count, size_t size) {
  return HandOverAt(place) ? host.reallocarr(place, count, size) : ENOMEM;
}

HEAPTAP_C_EXPORT int mi_reallocarr(void* place, size_t count, size_t size) {
  return HandOverAt(place) ? host.mi_reallocarr(place, count, size) : ENOMEM;
}

// Never moves the block.
HEAPTAP_C_EXPORT void* mi_expand(void* pointer, size_t size) {
  if (!IsOfGuest(pointer)) return host.mi_expand(pointer, size);
  return size <= heaptap::SampleUsableSize(pointer) ? pointer : nullptr;
}

// Size 0 does not free the block, unlike in realloc. With MALLOCX_ZERO, all memory beyond the old block reads as zero.
HEAPTAP_C_EXPORT void* rallocx(void* pointer, size_t size, int flags) {
  const bool was_sample = IsOfGuest(pointer);
  heaptap::StartGuest();
  const bool is_over = Charge(ChargedSize(SizeOf(size), TraitsOf(flags).alignment));
  void* target = is_over ? TakeExtendedSample(size, flags) : nullptr;
  if (!was_sample) {
    if (target == nullptr) return ServedByHost(host.rallocx(pointer, size, flags));
    return heaptap::MoveToSample(pointer, target, SizeOf(size));
  }
  if (target == nullptr) target = ServedByHost(host.mallocx(SizeOf(size), flags));
  if (target == nullptr) return nullptr;
  const size_t usable = heaptap::SampleUsableSize(pointer);
  memcpy(target, pointer, usable < size ? usable : size);
  heaptap::FreeSample(pointer);
  return target;
}
