/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates on stacks that change their form: frames of random size, jumps out of them, signal handlers on a stack of
 * their own, coroutines whose stacks are unmapped and mapped again with another size, threads one after the other and
 * side by side. Prints the number of blocks that are kept at the end, each of 100 bytes from keep_odd().
 *
 * odd_stacks ROUNDS
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { BLOCK_BYTES = 100, KEEP_ONE_OF = 50, PAGE_BYTES = 4096, THREADS = 4 };

static int rounds;
static _Atomic int kept;

static __thread uint32_t state;

static uint32_t next_random(void) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

NOINLINE void* keep_odd(void) { return malloc(BLOCK_BYTES); }

NOINLINE void allocate(void) {
  void* volatile block = keep_odd();
  if (next_random() % KEEP_ONE_OF == 0) {
    kept++;
  } else {
    free(block);
  }
}

/* A frame of another size each time. */
NOINLINE void with_array(int depth) {
  volatile char* array = alloca(16 + next_random() % 2000);
  array[0] = 1;
  if (depth > 0 && next_random() % 2) with_array(depth - 1);
  allocate();
  array[1] = array[0];
}

static __thread jmp_buf back;

NOINLINE void leave(int depth) {
  allocate();
  if (depth > 0) leave(depth - 1);
  if (next_random() % 2) longjmp(back, 1);
  allocate();
}

NOINLINE void jump_out(int depth) {
  if (setjmp(back) == 0) leave(depth);
}

static void handle(int number) {
  (void)number;
  allocate();
}

static __thread ucontext_t caller;

static void run_coroutine(void) {
  for (int i = 0; i < 3; i++) {
    allocate();
    with_array(3);
  }
}

/* The stack lies where the one before was, but its top is elsewhere. */
static void use_coroutine(void) {
  const size_t bytes = (4 + next_random() % 4) * PAGE_BYTES;
  void* const stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) abort();
  ucontext_t coroutine;
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = stack;
  coroutine.uc_stack.ss_size = bytes;
  coroutine.uc_link = &caller;
  makecontext(&coroutine, run_coroutine, 0);
  swapcontext(&caller, &coroutine);
  munmap(stack, bytes);
}

static void* work(void* seed) {
  state = (uint32_t)(uintptr_t)seed;
  char* const signal_stack = malloc(SIGSTKSZ * 4);
  const stack_t own = {.ss_sp = signal_stack, .ss_size = SIGSTKSZ * 4};
  sigaltstack(&own, NULL);
  for (int i = 0; i < rounds; i++) {
    with_array(8);
    jump_out((int)(next_random() % 8));
    if (i % 8 == 0) pthread_kill(pthread_self(), SIGUSR1);
    if (i % 8 == 1) use_coroutine();
  }
  const stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  free(signal_stack);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  rounds = atoi(argv[1]);
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) { /* one after the other, on the same stack */
    if (pthread_create(&threads[0], NULL, work, (void*)(i + 1)) != 0) return 1;
    pthread_join(threads[0], NULL);
  }
  for (uintptr_t i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, work, (void*)(i + 100)) != 0) return 1;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  work((void*)1000);
  printf("%d\n", kept);
  return 0;
}
