/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads one after the other. For each number in its input it runs this many threads, each of which allocates and
 * frees BLOCKS blocks in allocate_in_thread(), and prints "allocated OBJECTS BYTES": the total so far, in usable bytes.
 * First it prints "ready PID"; it ends at the end of its input.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { BLOCKS = 8 };

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

int main(void) {
  static char input[64], output[BUFSIZ];
  setvbuf(stdin, NULL, _IONBF, 0);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  while (fgets(input, sizeof input, stdin) != NULL) {
    for (uint64_t threads = strtoull(input, NULL, 0); threads > 0; threads--) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
      pthread_join(thread, NULL);
    }
    printf("allocated %llu %llu\n", (unsigned long long)objects, (unsigned long long)bytes);
  }
  return 0;
}
