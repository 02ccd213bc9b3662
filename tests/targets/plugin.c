/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to be opened late: SIDE_enter(ALLOCATE, COUNT) calls SIDE_middle() calls SIDE_inner() calls ALLOCATE, which
 * is malloc; its constructor does that once. Compiler options set SIDE and the size of the frames: two plugins have the
 * same code at the same addresses, except for the size of the frames. The code needs no relocation.
 */
#include <stddef.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))
#define JOIN(a, b) a##_##b
#define NAMED(side, name) JOIN(side, name)
#define NAME(name) NAMED(SIDE, name)
#define USE(memory) __asm__ volatile("" ::"r"(memory) : "memory")

typedef void* (*allocator)(size_t);

NOINLINE void NAME(inner)(allocator allocate) {
  char local[FRAME];
  USE(local);
  USE(allocate(64));
  USE(local);
}

NOINLINE void NAME(middle)(allocator allocate) {
  char local[FRAME];
  USE(local);
  NAME(inner)(allocate);
  USE(local);
}

NOINLINE void NAME(enter)(allocator allocate, long count) {
  for (long i = 0; i < count; i++) NAME(middle)(allocate);
}

#ifndef NO_CONSTRUCTOR
__attribute__((constructor)) NOINLINE void NAME(construct)(void) { NAME(middle)(malloc); }
#endif
