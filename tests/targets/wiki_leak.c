/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leak example of jemalloc's wiki ("Use Case: Leak Checking"). 80 blocks of i * 1024 bytes and 40 of i * 4096:
 * in jemalloc's size classes 6926352 bytes, 120 objects, 2 contexts. Built with -O0 -g.
 */
#include <stdlib.h>

void do_something(size_t i) {
  /* Leak some memory. */
  malloc(i * 1024);
}

void do_something_else(size_t i) {
  /* Leak some memory. */
  malloc(i * 4096);
}

int main(void) {
  size_t i;

  for (i = 0; i < 80; i++) {
    do_something(i);
  }

  for (i = 0; i < 40; i++) {
    do_something_else(i);
  }

  return 0;
}
