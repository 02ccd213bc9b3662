// SPDX-License-Identifier: Apache-2.0
//
// The fast paths of malloc, free, and the plain operators new and delete.
//
// The Makefile compiles only this file without frame pointers and with tail calls: each function either returns or
// jumps to a slow path, which has a frame. If a function here called a slow path, it would have no frame in the middle
// of the stack, and a walk by frame pointers would miss its caller, which is the function that allocates.
#include "allocator/api/malloc_fast.h"

#include <stdlib.h>

#include <new>

#include "allocator/api/symbols.h"
#include "allocator/core/allocate.h"

using heaptap::Allocate;
using heaptap::Free;

HEAPTAP_C_EXPORT void* malloc(size_t size) { return Allocate<heaptap::MallocSlow>(size); }
HEAPTAP_C_EXPORT void free(void* pointer) { Free(pointer); }

// Programs use these names to bypass an interposed malloc.
HEAPTAP_C_EXPORT void* __libc_malloc(size_t size) HEAPTAP_ALIAS(malloc);
HEAPTAP_C_EXPORT void __libc_free(void* pointer) HEAPTAP_ALIAS(free);

HEAPTAP_EXPORT void* operator new(size_t size) { return Allocate<heaptap::NewSlow>(size); }
HEAPTAP_EXPORT void* operator new[](size_t size) { return Allocate<heaptap::NewSlow>(size); }
HEAPTAP_EXPORT void operator delete(void* pointer) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete[](void* pointer) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete(void* pointer, size_t) noexcept { Free(pointer); }
HEAPTAP_EXPORT void operator delete[](void* pointer, size_t) noexcept { Free(pointer); }
