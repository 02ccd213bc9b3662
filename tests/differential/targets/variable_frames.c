/* SPDX-License-Identifier: Apache-2.0 */
/* Frames whose size is known only at run time: alloca, arrays of variable length, locals of large alignment. */
#include <alloca.h>
#include <stdint.h>
#include <string.h>

#include "keep.h"

static char volatile seen;

static NOINLINE void leaf(size_t size) { keep(size); }

static NOINLINE void with_alloca(int level, size_t size);
static NOINLINE void with_array(int level, size_t size);
static NOINLINE void with_alignment(int level, size_t size);
static NOINLINE void with_both(int level, size_t size);

static NOINLINE void next(int level, size_t size) {
  static void (*const ways[])(int, size_t) = {with_alloca, with_array, with_alignment, with_both};
  if (level == 0) {
    leaf(size);
  } else {
    ways[(level + size) % 4](level - 1, size);
  }
  NOT_A_TAIL_CALL;
}

static NOINLINE void with_alloca(int level, size_t size) {
  char* room = alloca(size);
  memset(room, level, size);
  next(level, size);
  seen = room[size / 2];
}

static NOINLINE void with_array(int level, size_t size) {
  char rooms[level + 1][size];
  memset(rooms, level, sizeof rooms);
  next(level, size);
  seen = rooms[level][size / 2];
}

static NOINLINE void with_alignment(int level, size_t size) {
  _Alignas(128) char room[128];
  memset(room, level, sizeof room);
  next(level, size);
  seen = room[size % 128];
}

static NOINLINE void with_both(int level, size_t size) {
  _Alignas(64) char room[64];
  char* more = alloca(size);
  memset(room, level, sizeof room);
  memset(more, level, size);
  next(level, size);
  seen = room[size % 64] + more[size / 2];
}

int main(void) {
  for (int round = 0; round < 2000; round++) {
    next(round % 20, 50 + (size_t)round % 500);
  }
  return 0;
}
