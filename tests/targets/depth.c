/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmark of "every allocation recorded": depth FRAMES PAIRS makes PAIRS malloc+free pairs of 64 bytes under
 * FRAMES frames of its own (main is the first, pairs() the last) and prints the nanoseconds a pair.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

NOINLINE double pairs(long count) {
  double begin = now();
  for (long i = 0; i < count; i++) {
    void* volatile block = malloc(64);
    free(block);
  }
  return (now() - begin) / (double)count;
}

NOINLINE double descend(long frames, long count) {
  double result = frames > 0 ? descend(frames - 1, count) : pairs(count);
  /* Something to do after the call: a tail call would have no frame. */
  __asm__ volatile("" : "+m"(result));
  return result;
}

int main(int argc, char** argv) {
  long frames = argc > 1 ? atol(argv[1]) : 2;
  long count = argc > 2 ? atol(argv[2]) : 100000;
  /* Warm: the first allocations map memory and, in some allocators, load the unwinder. */
  pairs(1000);
  double result = frames <= 2 ? pairs(count) : descend(frames - 3, count);
  printf("%.1f\n", result);
  return 0;
}
