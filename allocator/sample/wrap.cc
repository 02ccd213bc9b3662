// SPDX-License-Identifier: Apache-2.0
//
// libheaptap-guest.a: samples the blocks of the allocator that is linked into a program. The linker leads the program's
// calls here (--wrap=malloc: calls of malloc go to __wrap_malloc, and __real_malloc is the allocator's).
//
// Unlike libheaptap-guest.so, this guest has no blocks of its own: a sample stays the block that the allocator made,
// and the library remembers its address (remembered.h). Calls between functions of one object file are not wrapped, nor
// are calls of shared libraries, so an allocator may get any block back by a call that is not wrapped. The block is
// always the allocator's own; heaptap only misses the free.
//
// Any thread, any time. Compiled with tail calls, like sample.cc.
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/platform/charge.h"
#include "allocator/platform/numbers.h"
#include "allocator/sample/wrapped.h"
#include "heaptap/sample.h"

extern "C" {

extern const char heaptap_sample_host[] __attribute__((visibility("hidden")));
const char heaptap_sample_host[] = "linked malloc";

void* __real_malloc(size_t size);
void __real_free(void* pointer);
void* __real_calloc(size_t count, size_t size);
void* __real_realloc(void* pointer, size_t size);
// Weak: an allocator need not have them, and must not get them from libc.a together with another malloc.
int __real_posix_memalign(void** result, size_t alignment, size_t size) __attribute__((weak));
void* __real_aligned_alloc(size_t alignment, size_t size) __attribute__((weak));
void* __real_memalign(size_t alignment, size_t size) __attribute__((weak));
void* __real_valloc(size_t size) __attribute__((weak));
void* __real_pvalloc(size_t size) __attribute__((weak));
size_t malloc_usable_size(void* pointer) __attribute__((weak));
int dladdr(const void*, Dl_info*) noexcept __attribute__((weak));

}  // extern "C"

using heaptap::ChargeOf;
using heaptap::kPageSize;

namespace {

using UsableSize = size_t (*)(void*);

// The malloc_usable_size of the same allocator: in a dynamic program, libc has one that knows only libc's blocks.
// nullptr: the allocator has none, or the constructor has not run.
constinit UsableSize usable_size = nullptr;

[[gnu::constructor(101)]] void FindUsableSize() {
  const auto file_of = [](const void* function) -> const void* {
    Dl_info info;
    // A static program has no dladdr.
    return dladdr != nullptr && dladdr(function, &info) != 0 ? info.dli_fbase : nullptr;
  };
  const void* own = reinterpret_cast<const void*>(&__real_malloc);
  if (file_of(own) == file_of(reinterpret_cast<const void*>(malloc_usable_size))) usable_size = malloc_usable_size;
}

// Whether the countdown is over.
[[gnu::always_inline]] inline bool Charge(size_t size) {
  return __builtin_expect(__builtin_sub_overflow(heaptap_sample_left, ChargeOf(size), &heaptap_sample_left), 0);
}

[[gnu::noinline]] void* Sample(void* block, uint64_t charge, size_t size) {
  return heaptap_sample_wrapped_alloc(block, charge, usable_size, size);
}

bool MayBeSample(const void* block) {
  const uint64_t hash = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(block)) * 0x9e3779b97f4a7c15 >> 52;
  return __builtin_expect(__atomic_load_n(&heaptap_sample_counts[hash], __ATOMIC_RELAXED) != 0, 0);
}

// The slow paths have frames, unlike the functions that the program calls.
[[gnu::noinline]] void* SlowMalloc(size_t size) { return Sample(__real_malloc(size), ChargeOf(size), size); }

[[gnu::noinline]] void* SlowCalloc(size_t count, size_t size) {
  return Sample(__real_calloc(count, size), ChargeOf(count * size), count * size);
}

[[gnu::noinline]] void FreeSample(void* pointer) {
  heaptap_sample_wrapped_free(pointer);
  __real_free(pointer);
}

void* Refuse() {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

extern "C" {

void* __wrap_malloc(size_t size) {
  if (Charge(size)) return SlowMalloc(size);
  return __real_malloc(size);
}

// If the product overflows, the charge is wrong, and the allocator refuses the request.
void* __wrap_calloc(size_t count, size_t size) {
  if (Charge(count * size)) return SlowCalloc(count, size);
  return __real_calloc(count, size);
}

void __wrap_free(void* pointer) {
  if (MayBeSample(pointer)) return FreeSample(pointer);
  __real_free(pointer);
}

// The old block counts as freed even if the allocator refuses the new one: afterwards it would be too late to say so,
// since another thread may have the memory.
void* __wrap_realloc(void* pointer, size_t size) {
  if (MayBeSample(pointer)) heaptap_sample_wrapped_free(pointer);
  // Size 0 may free the block and return nullptr, which is not a sample.
  if (Charge(size)) return Sample(__real_realloc(pointer, size), ChargeOf(size), size);
  return __real_realloc(pointer, size);
}

// The allocator's own reallocarray is not called: it may call the allocator's realloc, and this call is not wrapped.
void* __wrap_reallocarray(void* pointer, size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? Refuse() : __wrap_realloc(pointer, bytes);
}

int __wrap_posix_memalign(void** result, size_t alignment, size_t size) {
  if (__real_posix_memalign == nullptr) return ENOMEM;
  const int error = __real_posix_memalign(result, alignment, size);
  if (Charge(size + alignment)) Sample(error == 0 ? *result : nullptr, ChargeOf(size + alignment), size);
  return error;
}

// Defines a function that returns an aligned block.
#define HEAPTAP_ALIGNED(name, parameters, arguments, charged, size)  \
  void* __wrap_##name parameters {                                   \
    if (__real_##name == nullptr) return Refuse();                   \
    if (!Charge(charged)) return __real_##name arguments;            \
    return Sample(__real_##name arguments, ChargeOf(charged), size); \
  }
HEAPTAP_ALIGNED(aligned_alloc, (size_t alignment, size_t size), (alignment, size), size + alignment, size)
HEAPTAP_ALIGNED(memalign, (size_t alignment, size_t size), (alignment, size), size + alignment, size)
HEAPTAP_ALIGNED(valloc, (size_t size), (size), size + kPageSize, size)
HEAPTAP_ALIGNED(pvalloc, (size_t size), (size), size + kPageSize, size)
#undef HEAPTAP_ALIGNED

}  // extern "C"
