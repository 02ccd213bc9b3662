/* SPDX-License-Identifier: Apache-2.0 */
/* Calls through stubs of the PLT, bound at the first call: here, in a library, and back. */
#include "keep.h"
#include "libplt.h"

static NOINLINE void down(int level, size_t size) {
  if (level > 0) {
    down(level - 1, size);
  } else {
    plt_keep(size);
    plt_call(plt_keep, size);
  }
  NOT_A_TAIL_CALL;
}

static void back(size_t size) { down(3, size); }

int main(void) {
  for (size_t round = 0; round < 200; round++) {
    down((int)(round % 6), 100 + round);
    plt_call(back, 300 + round);
  }
  return 0;
}
