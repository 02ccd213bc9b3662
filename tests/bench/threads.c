// SPDX-License-Identifier: Apache-2.0
//
// What threads do with blocks: threads producer|server|short COUNT. Prints the seconds.
//
// producer  one thread allocates COUNT blocks of 16 to 1039 B and writes them; another thread frees them
// server    two threads replace blocks of 16 to 527 B at random among 1000 each. After 10,000 replacements a thread
// ends
//           and hands its blocks to a new one, COUNT times altogether (as the server of Larson and Krishnan's
//           benchmark)
// short     COUNT threads, two at a time: each allocates 100 blocks of 16 to 527 B, frees them and ends
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRing = 1024, kBlocks = 1000, kReplacements = 10000, kShortBlocks = 100 };

static size_t count;

static uint64_t Next(uint64_t* state) {  // xorshift64: every allocator gets the same numbers
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static char* NewBlock(uint64_t* state, size_t range) {
  const size_t size = 16 + Next(state) % range;
  char* const block = malloc(size);
  if (block == NULL) abort();
  block[0] = block[size - 1] = 1;
  return block;
}

static char* ring[kRing];
static _Alignas(64) atomic_size_t produced;
static _Alignas(64) atomic_size_t consumed;

static void* Produce(void* argument) {
  uint64_t state = 1;
  size_t seen = 0;
  for (size_t i = 0; i < count; i++) {
    while (i - seen >= kRing) seen = atomic_load_explicit(&consumed, memory_order_acquire);
    ring[i % kRing] = NewBlock(&state, 1024);
    atomic_store_explicit(&produced, i + 1, memory_order_release);
  }
  return argument;
}

static void* Consume(void* argument) {
  size_t seen = 0;
  for (size_t i = 0; i < count; i++) {
    while (i >= seen) seen = atomic_load_explicit(&produced, memory_order_acquire);
    free(ring[i % kRing]);
    atomic_store_explicit(&consumed, i + 1, memory_order_release);
  }
  return argument;
}

static void RunTwo(void* (*first)(void*), void* (*second)(void*), void* argument, void* other) {
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, first, argument);
  pthread_create(&threads[1], NULL, second, other);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
}

typedef struct {
  uint64_t state;
  size_t generations;
  char* blocks[kBlocks];
} Connection;

static void* Serve(void* argument) {
  Connection* const connection = argument;
  for (size_t i = 0; i < kReplacements; i++) {
    char** const block = &connection->blocks[Next(&connection->state) % kBlocks];
    free(*block);
    *block = NewBlock(&connection->state, 512);
  }
  return NULL;
}

// Starts the threads of one connection, one after the other.
static void* Accept(void* argument) {
  Connection* const connection = argument;
  for (size_t i = 0; i < connection->generations; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, Serve, connection);
    pthread_join(thread, NULL);
  }
  return NULL;
}

static void* Short(void* argument) {
  char* blocks[kShortBlocks];
  for (size_t i = 0; i < kShortBlocks; i++) blocks[i] = NewBlock(argument, 512);
  for (size_t i = 0; i < kShortBlocks; i++) free(blocks[i]);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: threads producer|server|short COUNT\n");
    return 2;
  }
  count = strtoul(argv[2], NULL, 10);
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (strcmp(argv[1], "producer") == 0) {
    RunTwo(Produce, Consume, NULL, NULL);
  } else if (strcmp(argv[1], "server") == 0) {
    static Connection connections[2];
    connections[0] = (Connection){.state = 1, .generations = count / 2};
    connections[1] = (Connection){.state = 2, .generations = count / 2};
    RunTwo(Accept, Accept, &connections[0], &connections[1]);
  } else if (strcmp(argv[1], "short") == 0) {
    static uint64_t states[2] = {1, 2};
    for (size_t i = 0; i < count; i += 2) RunTwo(Short, Short, &states[0], &states[1]);
  } else {
    return 2;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("%.6f\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9);
  return 0;
}
