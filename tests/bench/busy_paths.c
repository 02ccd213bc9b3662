/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that holds blocks of many call paths: busy_paths BITS CHANGES [PATHS]. Each of the 2^BITS ways to call
 * go_left() and go_right() BITS times, or of the first PATHS of them, holds one block of 4 KiB; every second, CHANGES
 * of them hold another block, or one more or less. Ends when its standard input ends.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { kBlockBytes = 4096, kMostBlocks = 4, kSecond = 1000 };

struct held {
  void* blocks[kMostBlocks];
  int count;
};
static struct held* all;
static unsigned long changes;

void go_left(unsigned long path, int depth, struct held* held);
void go_right(unsigned long path, int depth, struct held* held);

NOINLINE void descend(unsigned long path, int depth, struct held* held) {
  if (depth == 0) {
    held->blocks[held->count++] = malloc(kBlockBytes);
  } else if (path & 1) {
    go_right(path >> 1, depth - 1, held);
  } else {
    go_left(path >> 1, depth - 1, held);
  }
}

NOINLINE void go_left(unsigned long path, int depth, struct held* held) { descend(path, depth, held); }
NOINLINE void go_right(unsigned long path, int depth, struct held* held) { descend(path, depth, held); }

int main(int argc, char** argv) {
  const int bits = argc > 1 ? atoi(argv[1]) : 10;
  const unsigned long each_second = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
  const unsigned long paths = argc > 3 ? strtoul(argv[3], NULL, 10) : 1ul << bits;
  all = calloc(paths, sizeof(struct held));
  for (unsigned long path = 0; path < paths; path++) descend(path, bits, &all[path]);
  for (struct pollfd input = {.fd = 0, .events = POLLIN}; poll(&input, 1, kSecond) == 0;) {
    for (unsigned long i = 0; i < each_second; i++) {
      const unsigned long path = random() % paths;
      struct held* held = &all[path];
      changes++;
      if (held->count == kMostBlocks || (held->count > 0 && (changes & 1) != 0)) {
        free(held->blocks[--held->count]);
      } else {
        descend(path, bits, held);
      }
    }
  }
  return 0;
}
