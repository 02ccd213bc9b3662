/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads one after the other: short_threads THREADS PER_SECOND. Each allocates and frees BLOCKS blocks in
 * allocate_in_thread(). Prints "allocated OBJECTS BYTES" (usable ones) when all have ended, and ends when its input
 * does.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { BLOCKS = 8 };
static const uint64_t second = 1000000000;

static uint64_t objects, bytes;

NOINLINE void allocate_in_thread(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    void* volatile block = malloc(100 * (i + 1));
    objects++;
    bytes += malloc_usable_size(block);
    free(block);
  }
}

static void* work(void* unused) {
  allocate_in_thread();
  return unused;
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * second + (uint64_t)time.tv_nsec;
}

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOLBF, sizeof output);
  if (argc != 3) {
    fprintf(stderr, "usage: short_threads THREADS PER_SECOND\n");
    return 2;
  }
  uint64_t threads = strtoull(argv[1], NULL, 0), per_second = strtoull(argv[2], NULL, 0), begin = now();
  for (uint64_t i = 0; i < threads; i++) {
    struct timespec tick = {0, 1000000};
    while ((now() - begin) * per_second < i * second) nanosleep(&tick, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) {
      return 1;
    }
    pthread_join(thread, NULL);
  }
  printf("allocated %llu %llu\n", (unsigned long long)objects, (unsigned long long)bytes);
  static char input[16];
  setvbuf(stdin, NULL, _IONBF, 0);
  while (fgets(input, sizeof input, stdin) != NULL) {
  }
  return 0;
}
