// SPDX-License-Identifier: Apache-2.0
//
// Large blocks that come and go: large_blocks COUNT ROUNDS. Keeps COUNT blocks of 5 to 25 MiB. In each round one of
// them, chosen at random, is freed and replaced by a block of another size, whose bytes are all written. Prints
// nothing.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t kLeast = 5 << 20;
static const size_t kRange = 20 << 20;

static uint64_t state = 1;

// xorshift64: every allocator gets the same numbers.
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: large_blocks COUNT ROUNDS\n");
    return 2;
  }
  const size_t count = strtoul(argv[1], NULL, 10);
  const size_t rounds = strtoul(argv[2], NULL, 10);
  char** const blocks = calloc(count, sizeof(char*));
  if (blocks == NULL) return 1;
  for (size_t round = 0; round < rounds; round++) {
    char** const block = &blocks[next() % count];
    const size_t size = kLeast + next() % kRange;
    free(*block);
    *block = malloc(size);
    if (*block == NULL) return 1;
    memset(*block, 1, size);
  }
  for (size_t i = 0; i < count; i++) free(blocks[i]);
  free(blocks);
  return 0;
}
