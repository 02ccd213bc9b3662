/* SPDX-License-Identifier: Apache-2.0 */
/* 200 frames deep, allocating on the way down and up: direct, mutual, and through a library's callback. */
#include "keep.h"

static NOINLINE void down(int level) {
  keep(100 + (size_t)level);
  if (level > 0) {
    down(level - 1);
  }
  keep(500 + (size_t)level);
}

static NOINLINE int odd(int number);

static NOINLINE int even(int number) {
  keep(1000 + (size_t)number);
  return number == 0 ? 1 : !odd(number - 1);
}

static NOINLINE int odd(int number) {
  keep(2000 + (size_t)number);
  return number == 0 ? 1 : !even(number - 1);
}

static int level;

static int compare(const void* a, const void* b) {
  keep(3000 + (size_t)level);
  if (level < 40) {
    int pair[] = {2, 1};
    level++;
    qsort(pair, 2, sizeof *pair, compare);
    level--;
  }
  return *(const int*)a - *(const int*)b;
}

int main(void) {
  for (int round = 0; round < 20; round++) {
    down(200);
    even(200);
    int pair[] = {2, 1};
    qsort(pair, 2, sizeof *pair, compare);
  }
  return 0;
}
