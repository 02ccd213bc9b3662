/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that never return as the last instruction of a function: the return address is that of the next function
 * (built with -falign-functions=1), whose frame is another.
 */
#include <setjmp.h>
#include <string.h>

#include "keep.h"

static jmp_buf back;

static NOINLINE __attribute__((noreturn)) void leave(size_t size) {
  keep(size);
  longjmp(back, 1);
}

static NOINLINE __attribute__((noreturn)) void small_frame(size_t size) { leave(size); }

static NOINLINE __attribute__((noreturn)) void large_frame(size_t size) {
  char room[1000];
  memset(room, (int)size, sizeof room);
  kept = room;
  leave(size + 1);
}

static NOINLINE __attribute__((noreturn)) void many_registers(size_t size, size_t a, size_t b, size_t c, size_t d) {
  for (size_t i = 0; i < 3; i++) {
    keep(size + a * i);
    keep(size + b * i + c * d);
  }
  leave(size + 2);
}

static NOINLINE __attribute__((noreturn)) void any(size_t which, size_t size) {
  if (which % 3 == 0) {
    small_frame(size);
  }
  if (which % 3 == 1) {
    large_frame(size);
  }
  many_registers(size, which, 1, 2, 3);
}

int main(void) {
  for (volatile size_t round = 0; round < 600; round++) {
    if (setjmp(back) == 0) {
      any(round, 100 + round % 50);
    }
  }
  return 0;
}
