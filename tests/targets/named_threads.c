/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three threads that allocate different amounts. First it prints "ready PID". For each line of input it starts the
 * threads worker-1, worker-2 and worker-3, one after the other; worker-N allocates and frees N * 1000 blocks of 1000
 * bytes. Then it prints "TID TID TID". It ends with status 0 at the end of its input.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 3, BLOCKS = 1000, BLOCK_BYTES = 1000 };

static pid_t threads[THREADS];

static void* work(void* argument) {
  uintptr_t number = (uintptr_t)argument;
  char name[16];
  snprintf(name, sizeof name, "worker-%d", (int)number);
  pthread_setname_np(pthread_self(), name);
  threads[number - 1] = gettid();
  for (uintptr_t i = 0; i < number * BLOCKS; i++) {
    void* volatile block = malloc(BLOCK_BYTES);
    free(block);
  }
  return NULL;
}

int main(void) {
  static char input[BUFSIZ], output[BUFSIZ];
  static char line[256];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  while (fgets(line, sizeof line, stdin) != NULL) {
    for (uintptr_t number = 1; number <= THREADS; number++) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, work, (void*)number) != 0) {
        return 1;
      }
      pthread_join(thread, NULL);
    }
    printf("%d %d %d\n", threads[0], threads[1], threads[2]);
  }
  return 0;
}
