/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that are bound at the first call, by resolvers that allocate: _dl_runtime_resolve is on the stack. */
#include "keep.h"
#include "libplt.h"

static NOINLINE int first_call(int level) {
  char room[100];
  for (int i = 0; i < (int)sizeof room; i++) {
    room[i] = (char)(i * level);
  }
  int sum = room[level];
  switch (level) {
#define CALL(n)                 \
  case n:                       \
    sum += resolved_##n(level); \
    break;
    RESOLVED(CALL)
  }
  return sum + room[level + 1];
}

static NOINLINE int down(int level, int number) { return level > 0 ? down(level - 1, number) + 1 : first_call(number); }

int main(void) {
  int sum = 0;
  for (int round = 0; round < 16; round++) {
    sum += down(round, round / 2 + 1);
  }
  return sum == 0;
}
