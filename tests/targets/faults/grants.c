/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much is granted at once? Prints for each function the largest power of two that it grants, in GiB.
 *
 * $SAMPLE: see tests/allocator/guest/sampling.h.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/allocator/guest/sampling.h"

#define GIB ((size_t)1 << 30)

enum { LARGEST = 1 << 17, ALIGNMENT = 64 };

static void* Malloc(size_t size) { return malloc(size); }
static void* Calloc(size_t size) { return calloc(2, size / 2); }
static void* Aligned(size_t size) { return aligned_alloc(ALIGNMENT, size); }

static void* Realloc(size_t size) {
  void* small = malloc(1);
  void* grown = realloc(small, size);
  if (grown == NULL) free(small);
  return grown;
}

static size_t LargestOf(void* (*allocate)(size_t size)) {
  for (size_t gib = LARGEST; gib != 0; gib /= 2) {
    void* block = allocate(gib * GIB);
    free(block);
    if (block != NULL) return gib;
  }
  return 0;
}

int main(void) {
  free(malloc(1));
  SwitchSamplingOn();
  free(malloc(1 << 20));
  printf("malloc %zu calloc %zu realloc %zu aligned_alloc %zu\n", LargestOf(Malloc), LargestOf(Calloc),
         LargestOf(Realloc), LargestOf(Aligned));
  return 0;
}
