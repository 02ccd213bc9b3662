/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that end by a jump to another: they are not on the stack, and those further out are. */
#include "keep.h"

typedef void (*step)(int, size_t);

static NOINLINE void third(int level, size_t size);

static NOINLINE void first(int level, size_t size) {
  char* room = malloc(size);
  kept = room;
  third(level - 1, size + 8);
}

static NOINLINE void second(int level, size_t size) {
  keep(size);
  keep(size * 2);
  first(level, size);
}

static step volatile by_pointer = second;

static NOINLINE void third(int level, size_t size) {
  if (level > 0) {
    keep(size * 3);
    by_pointer(level, size);
  } else {
    kept = calloc(1, size);
  }
}

/* The allocation itself is the jump. */
static NOINLINE void* allocate(size_t size) { return malloc(size + 16); }

static NOINLINE void begin(int level, size_t size) {
  first(level, size);
  kept = allocate(size);
  second(level, size);
}

int main(void) {
  for (int round = 0; round < 500; round++) {
    begin(1 + round % 7, 100 + (size_t)round);
  }
  return 0;
}
