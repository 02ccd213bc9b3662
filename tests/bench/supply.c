/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the cost of a block in a process that holds much memory.
 *
 *   supply fresh|churn SIZE GIB COUNT
 *
 * Allocates GIB GiB in blocks of 64 KiB without writing to them, and prints the nanoseconds of CPU time for each of
 * COUNT steps: fresh allocates another block of SIZE bytes; churn frees one of the 64 KiB blocks and allocates one of
 * SIZE bytes instead. The order is random and the same in each run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kHeldSize = 65536 };

static uint64_t Random(void) {
  static uint64_t state = 88172645463325252;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void* Allocate(size_t size) {
  void* block = malloc(size);
  if (block != NULL) return block;
  fprintf(stderr, "supply: out of memory\n");
  exit(1);
}

__attribute__((noinline)) static void Steps(void** blocks, size_t held, size_t count, size_t size, int churns) {
  for (size_t i = 0; i < count; i++) {
    void** slot = churns ? &blocks[Random() % held] : &blocks[held + i];
    if (churns) free(*slot);
    *slot = Allocate(size);
  }
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: supply fresh|churn SIZE GIB COUNT\n");
    return 2;
  }
  const int churns = strcmp(argv[1], "churn") == 0;
  const size_t size = strtoul(argv[2], NULL, 10);
  const size_t held = (strtoul(argv[3], NULL, 10) << 30) / kHeldSize;
  const size_t count = strtoul(argv[4], NULL, 10);
  /* Mapped without the allocator and already present, so that only the allocator is measured. */
  const size_t bytes = (held + count) * sizeof(void*);
  void** blocks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (blocks == MAP_FAILED) {
    fprintf(stderr, "supply: out of memory\n");
    return 1;
  }
  for (size_t i = 0; i < held; i++) blocks[i] = Allocate(kHeldSize);
  const double start = Now();
  Steps(blocks, held, count, size, churns);
  printf("%.1f\n", (Now() - start) / (double)count);
  return 0;
}
