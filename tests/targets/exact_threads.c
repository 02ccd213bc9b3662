/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight threads that free each other's objects, and the true totals. Three call paths, allocate_small(),
 * allocate_medium() and allocate_large(), put blocks into slots that all threads share; a thread that takes a slot
 * frees the block in it. The blocks in the slots stay at the end. Prints for each path:
 *
 *   PATH LIVE_OBJECTS LIVE_USABLE_BYTES ALLOCATED_OBJECTS
 *
 * exact_threads [ROUNDS]: each thread allocates this many blocks (default 30000); with - for ROUNDS, until a line
 * arrives on stdin, and then the process stays until the end of stdin. Which thread wins a slot differs from run to
 * run; the totals are counted, not assumed. Every size is above 48 bytes, where even jeprof's correction for lg_sample
 * 0 (factor 1 - exp(-size)) is 1 in doubles.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { THREADS = 8, SLOTS = 4096, PATHS = 3 };

static const char* const path_names[PATHS] = {"allocate_small", "allocate_medium", "allocate_large"};
static void* _Atomic slots[SLOTS];
static _Atomic uint64_t allocated[PATHS];
static size_t rounds = 30000;
static atomic_bool stop;

/* The beginning of each block names its path. */
static void* mark(void* block, size_t path) {
  *(size_t*)block = path;
  atomic_fetch_add(&allocated[path], 1);
  return block;
}

NOINLINE void* allocate_small(uint32_t random) { return mark(malloc(64 + random % 400), 0); }
NOINLINE void* allocate_medium(uint32_t random) { return mark(malloc(1024 + random % 8000), 1); }
NOINLINE void* allocate_large(uint32_t random) { return mark(malloc(20000 + random % 40000), 2); }

static uint32_t next_random(uint32_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return *state;
}

static void* work(void* seed) {
  uint32_t state = (uint32_t)(uintptr_t)seed;
  for (size_t i = 0; i < rounds && !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
    uint32_t kind = next_random(&state) % 16;
    uint32_t random = next_random(&state);
    void* block;
    if (kind == 0) {
      block = allocate_large(random);
    } else if (kind < 5) {
      block = allocate_medium(random);
    } else {
      block = allocate_small(random);
    }
    free(atomic_exchange(&slots[next_random(&state) % SLOTS], block));
  }
  return NULL;
}

/* Without stdio, which would allocate. False: end of input. */
static bool wait_for_line(void) {
  char byte;
  ssize_t got;
  while ((got = read(STDIN_FILENO, &byte, 1)) == 1 && byte != '\n') {
  }
  return got == 1;
}

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  bool is_driven = argc > 1 && strcmp(argv[1], "-") == 0;
  if (is_driven) {
    rounds = SIZE_MAX;
  } else if (argc > 1) {
    rounds = strtoul(argv[1], NULL, 0);
  }
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, work, (void*)(i * 7919 + 1)) != 0) {
      return 1;
    }
  }
  if (is_driven) {
    wait_for_line();
    atomic_store(&stop, true);
  }
  for (size_t i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  uint64_t objects[PATHS] = {0}, bytes[PATHS] = {0};
  for (size_t i = 0; i < SLOTS; i++) {
    void* block = atomic_load(&slots[i]);
    if (block != NULL) {
      objects[*(size_t*)block]++;
      bytes[*(size_t*)block] += malloc_usable_size(block);
    }
  }
  for (size_t i = 0; i < PATHS; i++) {
    printf("%s %llu %llu %llu\n", path_names[i], (unsigned long long)objects[i], (unsigned long long)bytes[i],
           (unsigned long long)atomic_load(&allocated[i]));
  }
  fflush(stdout);
  while (is_driven && wait_for_line()) {
  }
  return 0;
}
