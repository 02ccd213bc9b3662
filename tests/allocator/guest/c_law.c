/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampling law as in law.cc, of the functions of C, for a libc without a C++ library: of many allocations of one
 * size as many are samples as the law of the usable size says. musl's functions call each other by name, and an
 * allocation must be charged once.
 *
 * SAMPLE: the lg of the mean bytes between samples. The seed is fixed (HEAPTAP_CONF=prof_seed), and the bounds are
 * seven standard deviations wide.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "sampling.h"

enum { kCount = 50000, kAlignment = 64 };

static volatile size_t one = 1;

static void* Malloc(size_t size) { return malloc(size); }
static void* Calloc(size_t size) { return calloc(one, size); }
static void* Realloc(size_t size) { return realloc(NULL, size); }
static void* AlignedAlloc(size_t size) { return aligned_alloc(kAlignment, size); }
static void* Memalign(size_t size) { return memalign(kAlignment, size); }
static void* Valloc(size_t size) { return valloc(size); }

static void* PosixMemalign(size_t size) {
  void* block = NULL;
  return posix_memalign(&block, kAlignment, size) == 0 ? block : NULL;
}

static const struct {
  const char* name;
  void* (*allocate)(size_t size);
} kWays[] = {{"malloc", Malloc},     {"calloc", Calloc},
             {"realloc", Realloc},   {"aligned_alloc", AlignedAlloc},
             {"memalign", Memalign}, {"posix_memalign", PosixMemalign},
             {"valloc", Valloc}};

/* Until the thread has noticed another rate. */
static void WarmUp(void) {
  for (int i = 0; i < 100000; i++) free(malloc(1));
}

/* The usable size of a sample. */
static size_t SampleSize(void* (*allocate)(size_t size), size_t size) {
  Control()->collector_lg_sample = 0;
  WarmUp();
  void* block = allocate(size);
  const size_t usable = malloc_usable_size(block);
  free(block);
  SwitchSamplingOn();
  WarmUp();
  return usable;
}

static void CheckLaw(const char* name, void* (*allocate)(size_t size), size_t size, double mean) {
  const double usable = (double)SampleSize(allocate, size);
  uint64_t samples = 0;
  for (int i = 0; i < kCount; i++) {
    const uint64_t before = LiveSamples();
    void* block = allocate(size);
    samples += LiveSamples() - before;
    free(block);
  }
  const double p = mean == 1 ? 1 : 1 - exp(-usable / mean);
  const double deviation = sqrt(kCount * p * (1 - p));
  const double found = (double)samples;
  if (fabs(found - kCount * p) <= 7 * deviation) return;
  failures++;
  fprintf(stderr, "%s of %zu: %g samples, not %g +- %g\n", name, size, found, kCount * p, deviation);
}

int main(void) {
  const char* lg = getenv("SAMPLE");
  if (Control() == NULL || lg == NULL) {
    fprintf(stderr, "c_law: needs libheaptap-guest.so and SAMPLE\n");
    return 2;
  }
  SwitchSamplingOn();
  for (size_t i = 0; i < sizeof(kWays) / sizeof(kWays[0]); i++) {
    CheckLaw(kWays[i].name, kWays[i].allocate, 100, exp2(atoi(lg)));
    CheckLaw(kWays[i].name, kWays[i].allocate, 3000, exp2(atoi(lg)));
  }
  SwitchSamplingOff();
  return failures != 0;
}
