/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many call paths: contexts BITS [stay] leaks one block of 64 bytes at the end of each of the 2^BITS ways to call
 * go_left() and go_right() BITS times. Prints the number of blocks. For large dumps, and for maps that are too small.
 * With another argument it stays until it is killed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static void* volatile sink;

void go_left(unsigned long path, int depth);
void go_right(unsigned long path, int depth);

NOINLINE void descend(unsigned long path, int depth) {
  if (depth == 0) {
    sink = malloc(64);
  } else if (path & 1) {
    go_right(path >> 1, depth - 1);
  } else {
    go_left(path >> 1, depth - 1);
  }
}

NOINLINE void go_left(unsigned long path, int depth) { descend(path, depth); }
NOINLINE void go_right(unsigned long path, int depth) { descend(path, depth); }

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  int bits = argc > 1 ? atoi(argv[1]) : 10;
  for (unsigned long path = 0; path < 1ul << bits; path++) {
    descend(path, bits);
  }
  printf("%lu\n", 1ul << bits);
  fflush(stdout);
  if (argc > 2) pause();
  return 0;
}
