// SPDX-License-Identifier: Apache-2.0
//
// What a program loses that allocates a gigabyte a second, at the interval at which it is recorded: gigabyte SLICES.
// Each step allocates a block of 16 to 2031 bytes, writes its first byte, works for about a microsecond, and frees the
// oldest of 512 blocks. Slices of some fifty milliseconds are sampled and not sampled by turns
// (heaptap_control.active), so that both meet the same machine. Prints the medians of a step's nanoseconds when it is
// not sampled and when it is, and the bytes that the program allocates in a second.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "heaptap/contract.h"

enum { kBlocks = 512, kSizes = 4096, kSteps = 50000, kMostSlices = 4096, kWarm = 2 };

static char* blocks[kBlocks];
static uint16_t sizes[kSizes];
static uint64_t state = 1;
static volatile uint64_t sink;

static uint64_t Next(void) {  // xorshift64
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static double Nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// `work`: rounds of the random generator in a step. Returns the nanoseconds of a step.
static double Slice(int work) {
  const double begin = Nanoseconds();
  for (int i = 0; i < kSteps; i++) {
    char** const block = &blocks[i % kBlocks];
    free(*block);
    *block = malloc(sizes[i % kSizes]);
    if (*block == NULL) abort();
    **block = 1;
    for (int j = 0; j < work; j++) sink = Next();
  }
  return (Nanoseconds() - begin) / kSteps;
}

static int Compare(const void* one, const void* other) {
  const double a = *(const double*)one, b = *(const double*)other;
  return (a > b) - (a < b);
}

int main(int argc, char** argv) {
  static double times[2][kMostSlices];
  const int slices = argc == 2 ? atoi(argv[1]) : 0;
  struct heaptap_control* const control = dlsym(RTLD_DEFAULT, HEAPTAP_CONTROL_SYMBOL);
  if (slices < 2 || slices > 2 * kMostSlices || control == NULL) {
    fprintf(stderr, "usage: gigabyte SLICES, with heaptap recording\n");
    return 2;
  }
  uint64_t bytes = 0;
  for (int i = 0; i < kSizes; i++) bytes += sizes[i] = (uint16_t)(16 + Next() % 2016);
  const double mean = (double)bytes / kSizes;
  // As much work as makes a gigabyte a second.
  int work = 1;
  while (Slice(work) < mean) work += 1 + work / 16;
  for (int i = -kWarm; i < slices; i++) {
    const int is_sampled = i & 1;
    *(volatile uint32_t*)&control->active = (uint32_t)is_sampled;
    const double time = Slice(work);
    if (i >= 0) times[is_sampled][i / 2] = time;
  }
  double medians[2];
  for (int i = 0; i < 2; i++) {
    qsort(times[i], (size_t)slices / 2, sizeof(double), Compare);
    medians[i] = times[i][slices / 4];
  }
  printf("%.2f %.2f %.0f\n", medians[0], medians[1], mean / medians[0] * 1e9);
  return 0;
}
