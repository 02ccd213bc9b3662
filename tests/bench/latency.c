// SPDX-License-Identifier: Apache-2.0
//
// How long single calls of malloc and free take: latency THREADS OPERATIONS own|shared even|falling. Each thread
// replaces blocks of 16 B to 64 KiB, chosen at random among 1024 slots: its own, or those of all threads, so that a
// block is often freed by another thread. It writes the first byte of each block, outside the measured time.
//
// even     each power of two is as frequent as the others: 8 KiB on average
// falling  each power of two is half as frequent as the one below, as in many programs: 290 bytes on average
//
// Prints one line for malloc and one for free: the name, then BUCKET:COUNT for each bucket that is not empty. Bucket b
// below 32 holds times of b ns; above, each power of two has 32 buckets, so that a bucket is at most 3 % wide (the
// shape of HdrHistogram). A time is the difference of two readings of the time stamp counter, less the smallest
// difference that two readings with nothing in between show.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

enum {
  kSlots = 1024,
  kSizes = 8192,  // random numbers are drawn before the measurement
  kSubBuckets = 32,
  kBuckets = kSubBuckets * 40,
  kMostThreads = 64,
  kPowers = 12,
};

typedef struct {
  uint64_t counts[kBuckets];
} Histogram;

typedef struct {
  pthread_t thread;
  uint64_t seed;
  size_t sizes[kSizes];
  uint32_t slots[kSizes];
  _Atomic(char*) own[kSlots];
  Histogram malloc, free;
} Thread;

static Thread threads[kMostThreads];
static _Atomic(char*) shared[kSlots];
static size_t operations;
static int is_shared;
static uint64_t overhead;
static double ns_per_tick;
static pthread_barrier_t start;

static uint64_t Next(uint64_t* state) {  // xorshift64: every allocator gets the same numbers
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

// Earlier instructions have ended, and no later one has begun.
static uint64_t Ticks(void) {
  _mm_lfence();
  const uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
}

static void Count(Histogram* histogram, uint64_t ticks) {
  const uint64_t ns = ticks <= overhead ? 0 : (uint64_t)((double)(ticks - overhead) * ns_per_tick);
  size_t bucket = ns;
  if (ns >= kSubBuckets) {
    const unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - 5;  // 2^5 is kSubBuckets
    bucket = kSubBuckets * (shift + 1) + ((ns >> shift) - kSubBuckets);
  }
  histogram->counts[bucket < kBuckets ? bucket : kBuckets - 1]++;
}

static void* Run(void* argument) {
  Thread* const self = argument;
  _Atomic(char*)* const slots = is_shared ? shared : self->own;
  pthread_barrier_wait(&start);
  for (size_t i = 0; i < operations; i++) {
    const size_t at = i % kSizes;
    const uint64_t begin = Ticks();
    char* const block = malloc(self->sizes[at]);
    const uint64_t end = Ticks();
    Count(&self->malloc, end - begin);
    if (block == NULL) abort();
    *block = 1;
    char* const old = atomic_exchange(&slots[self->slots[(i + i / kSizes) % kSizes]], block);
    if (old == NULL) continue;
    const uint64_t free_begin = Ticks();
    free(old);
    const uint64_t free_end = Ticks();
    Count(&self->free, free_end - free_begin);
  }
  return NULL;
}

static void Print(const char* name, size_t count, size_t offset) {
  printf("%s", name);
  for (size_t bucket = 0; bucket < kBuckets; bucket++) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += ((const Histogram*)((const char*)&threads[i] + offset))->counts[bucket];
    if (sum != 0) printf(" %zu:%lu", bucket, (unsigned long)sum);
  }
  printf("\n");
}

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void Calibrate(void) {
  const double seconds = Seconds();
  const uint64_t ticks = Ticks();
  overhead = UINT64_MAX;
  while (Seconds() - seconds < 0.05) {
    for (int i = 0; i < 1000; i++) {
      const uint64_t begin = Ticks();
      const uint64_t end = Ticks();
      if (end - begin < overhead) overhead = end - begin;
    }
  }
  ns_per_tick = (Seconds() - seconds) * 1e9 / (double)(Ticks() - ticks);
}

int main(int argc, char** argv) {
  const size_t count = argc == 5 ? strtoul(argv[1], NULL, 10) : 0;
  if (count == 0 || count > kMostThreads) {
    fprintf(stderr, "usage: latency THREADS OPERATIONS own|shared even|falling\n");
    return 2;
  }
  operations = strtoul(argv[2], NULL, 10);
  is_shared = strcmp(argv[3], "shared") == 0;
  const int is_even = strcmp(argv[4], "even") == 0;
  Calibrate();
  pthread_barrier_init(&start, NULL, (unsigned)count);
  for (size_t i = 0; i < count; i++) {
    threads[i].seed = i + 1;
    for (size_t j = 0; j < kSizes; j++) {
      const uint64_t number = Next(&threads[i].seed);
      // 2^4 to 2^15, and up to twice that
      const uint64_t power = 4 + (is_even ? number % kPowers : (uint64_t)__builtin_ctzll(number | 1 << (kPowers - 1)));
      threads[i].sizes[j] = (1u << power) + Next(&threads[i].seed) % (1u << power);
      threads[i].slots[j] = (uint32_t)(Next(&threads[i].seed) % kSlots);
    }
    pthread_create(&threads[i].thread, NULL, Run, &threads[i]);
  }
  for (size_t i = 0; i < count; i++) pthread_join(threads[i].thread, NULL);
  Print("malloc", count, offsetof(Thread, malloc));
  Print("free", count, offsetof(Thread, free));
  return 0;
}
