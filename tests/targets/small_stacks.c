/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks for dumps on small stacks.
 *
 *   small_stacks thread    allocates in a thread with the smallest possible stack, so that triggers fire
 *   small_stacks handler   prof.dump in a signal handler on its own stack of 8 KiB
 *
 * Prints "error N, N bytes written below the stack" for the last call (0 for thread) and ends with status 0.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int mallctl(const char* name, void* old, size_t* old_length, void* new, size_t new_length) __attribute__((weak));

enum { STACK_BYTES = 8192, BELOW_BYTES = 65536, BLOCKS = 3000, BLOCK_BYTES = 4000, PATTERN = 0x5c };

static int error;

static void* allocate(void* unused) {
  static void* blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(BLOCK_BYTES);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  return unused;
}

static void dump(int signal) {
  (void)signal;
  error = mallctl("prof.dump", NULL, NULL, NULL, 0);
}

int main(int argc, char** argv) {
  if (argc != 2 || mallctl == NULL) return 1;
  int below = 0;
  if (strcmp(argv[1], "thread") == 0) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) != 0) return 1;
    if (pthread_create(&thread, &attributes, allocate, NULL) != 0) return 1;
    pthread_join(thread, NULL);
  } else {
    char* memory = mmap(NULL, BELOW_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    memset(memory, PATTERN, BELOW_BYTES);
    stack_t stack = {.ss_sp = memory + BELOW_BYTES, .ss_size = STACK_BYTES};
    struct sigaction action = {.sa_handler = dump, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return 1;
    raise(SIGUSR1);
    for (int i = 0; i < BELOW_BYTES; i++) below += memory[i] != PATTERN;
  }
  printf("error %d, %d bytes written below the stack\n", error, below);
  return 0;
}
