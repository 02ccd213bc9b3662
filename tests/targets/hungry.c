/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaks until it is killed: hungry [BLOCK_BYTES]. First keep_some() allocates 512 KiB that are in use, then
 * leak_block() allocates and touches blocks (default 64 KiB) without end. After each MiB it prints the number of bytes
 * leaked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { USEFUL_BLOCKS = 32, USEFUL_BYTES = 16384, REPORT_BYTES = 1 << 20 };

static void* useful[USEFUL_BLOCKS];
static void* volatile last;

NOINLINE void keep_some(void) {
  for (size_t i = 0; i < USEFUL_BLOCKS; i++) {
    useful[i] = memset(malloc(USEFUL_BYTES), 1, USEFUL_BYTES);
  }
}

NOINLINE void leak_block(size_t size) { last = memset(malloc(size), 1, size); }

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOLBF, sizeof output);
  size_t size = argc > 1 ? strtoul(argv[1], NULL, 0) : 65536;
  size_t reported = 0;
  keep_some();
  for (size_t leaked = size;; leaked += size) {
    leak_block(size);
    if (leaked - reported >= REPORT_BYTES) {
      reported = leaked;
      printf("%zu\n", leaked);
    }
  }
}
