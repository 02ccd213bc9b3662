// SPDX-License-Identifier: Apache-2.0
//
// The operators new and delete, except the plain ones (malloc_fast.cc). The library does not link with a C++ library,
// since most programs have none. When memory runs out, operator new must call the new handler, throw, or catch what the
// handler throws. It leaves this to the operator new of the caller's C++ library, which calls malloc again. That
// library is looked up at each failure: a C program may load a C++ library with its first plugin, and another one with
// the next.
#include <dlfcn.h>
#include <stdlib.h>

#include <new>

#include "allocator/api/malloc_fast.h"
#include "allocator/api/symbols.h"
#include "allocator/core/allocate.h"
#include "allocator/core/options.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"

namespace std {
// For static programs.
new_handler get_new_handler() noexcept __attribute__((weak));
void __throw_bad_alloc() __attribute__((weak, noreturn));
}  // namespace std

extern "C" {
// Weak: a static program without plugins does not have them, nor does a program without libdl before glibc 2.34.
extern decltype(dlsym) dlsym __attribute__((weak));
extern decltype(dlclose) dlclose __attribute__((weak));
}

namespace {

using heaptap::Allocate;
using heaptap::AllocateAligned;
using heaptap::CheckXmalloc;
using heaptap::Free;

constexpr size_t kNoAlignment = 0;

void* Try(size_t size, size_t alignment) {
  if (alignment == kNoAlignment) return CheckXmalloc(Allocate(size), heaptap::kErrorInMalloc);
  return CheckXmalloc(AllocateAligned(alignment, size), heaptap::kErrorInAligned);
}

// A handle for dlsym of the object that is loaded at an address.
class LoadedObject {
 public:
  explicit LoadedObject(const void* address) {
    // Looked up by name, since the linker warns about a static program that refers to dlopen.
    const auto open = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_DEFAULT, "dlopen"));
    const char* name = heaptap::FindObject(address).name;
    if (open != nullptr && name != nullptr) handle_ = open(name, RTLD_LAZY | RTLD_NOLOAD);
  }
  ~LoadedObject() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  // The symbol in the object or in its dependencies. nullptr: there is none.
  void* Find(const char* name) const { return handle_ == nullptr ? nullptr : dlsym(handle_, name); }

 private:
  void* handle_ = nullptr;
};

// The function of this name in the C++ library of the code at `caller`. nullptr: there is none. The library is found by
// its get_new_handler, which no allocator defines, unlike operator new.
void* FindInLibrary(const char* name, const void* caller) {
  if (&dlsym == nullptr) return nullptr;
  constexpr char kGetNewHandler[] = "_ZSt15get_new_handlerv";
  const void* handler = LoadedObject(caller).Find(kGetNewHandler);
  if (handler == nullptr) handler = dlsym(RTLD_DEFAULT, kGetNewHandler);
  if (handler == nullptr) return nullptr;
  void* function = LoadedObject(handler).Find(name);
  return heaptap::IsInAllocator(function) ? nullptr : function;
}

// Handles the failure without that library: calls the new handler until there is memory or no handler.
void* HandleFailure(size_t size, size_t alignment) {
  void* pointer = nullptr;
  while (std::get_new_handler != nullptr && pointer == nullptr) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) break;
    handler();
    pointer = Try(size, alignment);
  }
  return pointer;
}

void* HandleFailureOrThrow(size_t size, size_t alignment) {
  void* pointer = HandleFailure(size, alignment);
  if (pointer != nullptr) return pointer;
  if (std::__throw_bad_alloc != nullptr) std::__throw_bad_alloc();
  heaptap::Message message;
  message << "<heaptap>: operator new is out of memory, and finds no C++ library to throw std::bad_alloc; aborting\n";
  message.Print();
  abort();
}

// The four variants, which fail in different ways. `caller`: their return address.

void* New(size_t size, const void* caller) {
  if (void* pointer = Try(size, kNoAlignment)) return pointer;
  void* function = FindInLibrary("_Znwm", caller);
  if (function == nullptr) return HandleFailureOrThrow(size, kNoAlignment);
  return reinterpret_cast<void* (*)(size_t)>(function)(size);
}

void* New(size_t size, const std::nothrow_t& nothrow, const void* caller) {
  if (void* pointer = Try(size, kNoAlignment)) return pointer;
  void* function = FindInLibrary("_ZnwmRKSt9nothrow_t", caller);
  if (function == nullptr) return HandleFailure(size, kNoAlignment);
  return reinterpret_cast<void* (*)(size_t, const std::nothrow_t&)>(function)(size, nothrow);
}

void* New(size_t size, std::align_val_t alignment, const void* caller) {
  if (void* pointer = Try(size, static_cast<size_t>(alignment))) return pointer;
  void* function = FindInLibrary("_ZnwmSt11align_val_t", caller);
  if (function == nullptr) return HandleFailureOrThrow(size, static_cast<size_t>(alignment));
  return reinterpret_cast<void* (*)(size_t, std::align_val_t)>(function)(size, alignment);
}

void* New(size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow, const void* caller) {
  if (void* pointer = Try(size, static_cast<size_t>(alignment))) return pointer;
  void* function = FindInLibrary("_ZnwmSt11align_val_tRKSt9nothrow_t", caller);
  if (function == nullptr) return HandleFailure(size, static_cast<size_t>(alignment));
  return reinterpret_cast<void* (*)(size_t, std::align_val_t, const std::nothrow_t&)>(function)(size, alignment,
                                                                                                nothrow);
}

}  // namespace

// operator new jumps here, so the return address is in its caller.
void* heaptap::NewSlow(size_t size, size_t) { return New(size, __builtin_return_address(0)); }

HEAPTAP_EXPORT void* operator new(size_t size, const std::nothrow_t& nothrow) noexcept {
  return New(size, nothrow, __builtin_return_address(0));
}
HEAPTAP_EXPORT void* operator new(size_t size, std::align_val_t alignment) {
  return New(size, alignment, __builtin_return_address(0));
}
HEAPTAP_EXPORT void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) noexcept {
  return New(size, alignment, nothrow, __builtin_return_address(0));
}
HEAPTAP_EXPORT void* operator new[](size_t size, const std::nothrow_t& nothrow) noexcept {
  return New(size, nothrow, __builtin_return_address(0));
}
HEAPTAP_EXPORT void* operator new[](size_t size, std::align_val_t alignment) {
  return New(size, alignment, __builtin_return_address(0));
}
HEAPTAP_EXPORT void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t& nothrow) noexcept {
  return New(size, alignment, nothrow, __builtin_return_address(0));
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
