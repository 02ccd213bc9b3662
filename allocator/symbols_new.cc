// SPDX-License-Identifier: Apache-2.0
//
// C++'s operators new and delete, but for the plain ones (symbols_fast.cc). The library does not link with libstdc++:
// what it needs of it is there if the program is a C++ program.
#include <new>

#include "allocate.h"
#include "symbols.h"
#include "symbols_fast.h"
#include "xmalloc.h"

namespace std {
new_handler get_new_handler() noexcept __attribute__((weak));
void __throw_bad_alloc() __attribute__((weak, noreturn));
}  // namespace std

namespace {

using heaptap::Allocate;
using heaptap::AllocateAligned;
using heaptap::Free;
using heaptap::OrAbort;

constexpr size_t kNoAlignment = 0;

void* Try(size_t size, size_t alignment) {
  if (alignment == kNoAlignment) return OrAbort(Allocate(size), heaptap::kErrorInMalloc);
  return OrAbort(AllocateAligned(alignment, size), heaptap::kErrorInAligned);
}

// Calls the new handler, which may make room or throw, until there is memory or no handler.
void* TryWithHandler(size_t size, size_t alignment) {
  void* pointer;
  while ((pointer = Try(size, alignment)) == nullptr) {
    std::new_handler handler = std::get_new_handler != nullptr ? std::get_new_handler() : nullptr;
    if (handler == nullptr) return nullptr;
    handler();
  }
  return pointer;
}

void* TryOrThrow(size_t size, size_t alignment) {
  void* pointer = TryWithHandler(size, alignment);
  if (pointer != nullptr) return pointer;
  if (std::__throw_bad_alloc != nullptr) std::__throw_bad_alloc();
  __builtin_trap();
}

size_t Alignment(std::align_val_t alignment) { return static_cast<size_t>(alignment); }

}  // namespace

void* heaptap::NewSlow(size_t size) { return TryOrThrow(size, kNoAlignment); }

HEAPTAP_EXPORT void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return TryWithHandler(size, kNoAlignment);
}
HEAPTAP_EXPORT void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return TryWithHandler(size, kNoAlignment);
}
HEAPTAP_EXPORT void* operator new(size_t size, std::align_val_t alignment) {
  return TryOrThrow(size, Alignment(alignment));
}
HEAPTAP_EXPORT void* operator new[](size_t size, std::align_val_t alignment) {
  return TryOrThrow(size, Alignment(alignment));
}
HEAPTAP_EXPORT void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return TryWithHandler(size, Alignment(alignment));
}
HEAPTAP_EXPORT void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return TryWithHandler(size, Alignment(alignment));
}

HEAPTAP_EXPORT void operator delete(void* pointer, const std::nothrow_t&) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete[](void* pointer, const std::nothrow_t&) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete(void* pointer, std::align_val_t) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete[](void* pointer, std::align_val_t) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete(void* pointer, std::align_val_t, const std::nothrow_t&) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete[](void* pointer, std::align_val_t, const std::nothrow_t&) noexcept {
  Free(pointer);
}
HEAPTAP_EXPORT void operator delete(void* pointer, size_t, std::align_val_t) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete[](void* pointer, size_t, std::align_val_t) noexcept { Free(pointer); }
