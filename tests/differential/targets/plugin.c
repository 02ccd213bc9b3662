/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One source, two plugins: the same size of code, mapped at the same address (a linker option), but functions have
 * different addresses and frames.
 */
#include <string.h>

#include "keep.h"

#ifdef FIRST
__asm__(".text\n.skip 512, 0x90");
enum { ROOM = 0x300 };
#else
enum { ROOM = 0x500 };
#endif

static NOINLINE size_t inner(size_t size) {
  volatile char room[ROOM];
  room[size] = 1;
  keep(size);
  return size + (size_t)room[size];
}

static NOINLINE size_t outer(int level, size_t size) {
  volatile char room[2 * ROOM];
  room[size] = 2;
  if (level > 0) {
    return outer(level - 1, size) + (size_t)room[size];
  }
  return inner(size) + (size_t)room[size];
}

__attribute__((visibility("default"))) size_t plugin_allocate(size_t size);
size_t plugin_allocate(size_t size) { return outer((int)size % 4, size) + outer(2, size + 100); }

#ifndef FIRST
__asm__(".text\n.skip 512, 0x90");
#endif
