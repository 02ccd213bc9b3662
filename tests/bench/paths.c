/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paths PATHS FRAMES COUNT: makes COUNT malloc+free pairs of 64 bytes, each at one of PATHS call paths, in random
 * order, and prints the nanoseconds per pair. PATHS is a power of two; FRAMES, at least log2(PATHS), is the number of
 * frames below main. All paths have been there before the measurement begins. The time of the calls counts too.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Goes down through one of two call sites for each bit of `path`, the outermost frames first. */
static __attribute__((noinline, noclone)) void descend(unsigned frames, uint64_t path) {
  if (frames == 0) {
    void* volatile block = malloc(64);
    free(block);
    return;
  }
  if ((path & 1) != 0) {
    descend(frames - 1, path >> 1);
    __asm__ volatile("" ::: "memory"); /* no tail call */
  } else {
    descend(frames - 1, path >> 1);
    __asm__ volatile("nop" ::: "memory");
  }
}

/* Xorshift64 of Marsaglia, with its second triple of shifts. */
static uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const uint64_t paths = strtoull(argv[1], NULL, 10);
  const unsigned frames = (unsigned)strtoul(argv[2], NULL, 10);
  const long count = strtol(argv[3], NULL, 10);
  if (paths == 0 || (paths & (paths - 1)) != 0 || frames == 0 || count <= 0) return 2;
  /* Twice: a process reports its first samples, and waits for what it needs to count. */
  for (int round = 0; round < 2; round++) {
    for (uint64_t path = 0; path < paths; path++) descend(frames, path);
  }
  for (int i = 0; i < 2000; i++) descend(frames, 0);
  for (uint64_t path = 0; path < paths; path++) descend(frames, path);
  uint64_t state = 88172645463325252ULL;
  const double begin = now();
  for (long i = 0; i < count; i++) descend(frames, next_random(&state) & (paths - 1));
  printf("%.1f\n", (now() - begin) / (double)count);
  return 0;
}
