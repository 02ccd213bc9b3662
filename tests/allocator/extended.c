/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jemalloc's extended functions, from the program's side. Prints what must be the same on jemalloc and on heaptap: run
 * it with one or the other preloaded. Exit status 1 if a promise that holds on both is broken.
 *
 * Left out is what differs by nature: whether a block can grow in place; in-place shrinking of blocks below 40 KiB,
 * which heaptap takes from slabs of one size; mallocx of 0 bytes with an alignment, which jemalloc does not align.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "find.h"
#include "heaptap/heaptap.h"

static void* (*mallocx_)(size_t, int);
static void* (*rallocx_)(void*, size_t, int);
static size_t (*xallocx_)(void*, size_t, size_t, int);
static size_t (*sallocx_)(const void*, int);
static void (*dallocx_)(void*, int);
static void (*sdallocx_)(void*, size_t, int);
static size_t (*nallocx_)(size_t, int);

static int IsFilled(const unsigned char* bytes, size_t from, size_t to, unsigned char value) {
  for (size_t i = from; i < to; i++) {
    if (bytes[i] != value) return 0;
  }
  return 1;
}

static int IsAligned(const void* pointer, int lg_alignment) {
  return ((uintptr_t)pointer & (((uintptr_t)1 << lg_alignment) - 1)) == 0;
}

/* Sizes around each class, and around 2^n up to the largest. */
static size_t NextSize(size_t size) {
  if (size < 5000) return size + 1;
  size_t step = size >> 6;
  return SIZE_MAX - size < step ? 0 : size + step - (size & 1) + 1;
}

static void PossibleSizes(void) {
  for (int lg_alignment = 0; lg_alignment < 64; lg_alignment++) {
    printf("nallocx, alignment 2^%d:", lg_alignment);
    size_t last = SIZE_MAX;
    for (size_t size = 1; size != 0; size = NextSize(size)) {
      size_t usable = nallocx_(size, MALLOCX_LG_ALIGN(lg_alignment) | MALLOCX_ZERO | MALLOCX_ARENA(0));
      if (usable != last) printf(" %zu->%zu", size, usable);
      last = usable;
    }
    printf("\n");
  }
  printf("nallocx 0: %zu\n", nallocx_(0, 0));
  printf("nallocx of the largest: %zu %zu\n", nallocx_((size_t)7 << 60, 0), nallocx_(((size_t)7 << 60) + 1, 0));
}

static void Allocations(void) {
  for (size_t size = 1; size < (size_t)3 << 20; size = size * 9 / 7 + 1) {
    for (int lg_alignment = 0; lg_alignment <= 22; lg_alignment++) {
      int flags = MALLOCX_LG_ALIGN(lg_alignment) | MALLOCX_TCACHE_NONE;
      unsigned char* pointer = mallocx_(size, flags | MALLOCX_ZERO);
      size_t usable = sallocx_(pointer, flags);
      CHECK(usable == nallocx_(size, flags));
      CHECK(IsAligned(pointer, lg_alignment));
      CHECK(IsFilled(pointer, 0, usable, 0));
      memset(pointer, 0x33, usable);

      unsigned char* other = rallocx_(pointer, 2 * size + 1, flags | MALLOCX_ZERO);
      size_t other_usable = sallocx_(other, flags);
      CHECK(other_usable >= 2 * size + 1);
      CHECK(IsAligned(other, lg_alignment));
      CHECK(IsFilled(other, 0, usable < other_usable ? usable : other_usable, 0x33));
      CHECK(IsFilled(other, usable, other_usable, 0));

      other = rallocx_(other, size, flags);
      CHECK(IsAligned(other, lg_alignment));
      CHECK(IsFilled(other, 0, size, 0x33));
      if (lg_alignment % 2 == 0) {
        dallocx_(other, flags);
      } else {
        sdallocx_(other, size, flags);
      }
    }
  }
}

static void Impossible(void) {
  void* pointer = mallocx_(100, 0);
  memset(pointer, 0x33, 100);
  for (int i = 0; i < 4; i++) {
    const size_t sizes[] = {SIZE_MAX, ((size_t)7 << 60) + 1, 1, (size_t)1 << 62};
    const int flags[] = {0, MALLOCX_ZERO, MALLOCX_LG_ALIGN(63), 0};
    errno = 0;
    CHECK(mallocx_(sizes[i], flags[i]) == NULL);
    printf("mallocx(%zu, %d): errno %d\n", sizes[i], flags[i], errno);
    errno = 0;
    CHECK(rallocx_(pointer, sizes[i], flags[i]) == NULL);
    printf("rallocx(%zu, %d): errno %d\n", sizes[i], flags[i], errno);
    CHECK(IsFilled(pointer, 0, 100, 0x33));
  }
  pointer = rallocx_(pointer, 0, 0);
  printf("rallocx 0: %zu\n", sallocx_(pointer, 0));
  dallocx_(pointer, 0);
  pointer = mallocx_(0, 0);
  printf("mallocx 0: %zu\n", sallocx_(pointer, 0));
  dallocx_(pointer, 0);
}

/* A block changes in place as far as this says: large blocks shrink, small ones keep their size. */
static void InPlace(void) {
  const size_t small[] = {1, 8, 100, 1024, 10000, 14336};
  for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
    void* pointer = mallocx_(small[i], 0);
    printf("xallocx of %zu:", small[i]);
    for (size_t size = 1; size != 0 && size < (size_t)1 << 63; size *= 2) {
      printf(" %zu %zu", xallocx_(pointer, size, 0, 0), xallocx_(pointer, size, SIZE_MAX - size, MALLOCX_ZERO));
    }
    printf("\n");
    dallocx_(pointer, 0);
  }
  const size_t large[] = {40960, 100000, (size_t)1 << 20, (size_t)20 << 20, (size_t)64 << 20};
  for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
    unsigned char* pointer = mallocx_(large[i], 0);
    size_t usable = sallocx_(pointer, 0);
    memset(pointer, 0x33, usable);
    printf("xallocx of %zu:", large[i]);
    size_t aligned = xallocx_(pointer, large[i] / 2, 0, MALLOCX_LG_ALIGN(60));
    printf(" misaligned %zu", aligned);
    size_t size = large[i];
    do {
      size = size * 3 / 4;
      size_t shrunk = xallocx_(pointer, size, 0, 0);
      printf(" %zu", shrunk);
      CHECK(shrunk == sallocx_(pointer, 0));
      CHECK(IsFilled(pointer, 0, shrunk, 0x33));
    } while (size > 5000);
    printf(" with extra %zu", xallocx_(pointer, 1, 16383, 0));
    printf(" too large %zu\n", xallocx_(pointer, SIZE_MAX, 0, 0));
    /* It may grow again, into memory that was its own, or may not. */
    size_t before = sallocx_(pointer, 0);
    size_t grown = xallocx_(pointer, before, usable - before, MALLOCX_ZERO);
    CHECK(grown >= before && grown <= usable);
    CHECK(IsFilled(pointer, 0, before, 0x33));
    CHECK(IsFilled(pointer, before, grown, 0));
    dallocx_(pointer, 0);
  }
}

int main(void) {
  *(void**)&mallocx_ = Find("mallocx");
  *(void**)&rallocx_ = Find("rallocx");
  *(void**)&xallocx_ = Find("xallocx");
  *(void**)&sallocx_ = Find("sallocx");
  *(void**)&dallocx_ = Find("dallocx");
  *(void**)&sdallocx_ = Find("sdallocx");
  *(void**)&nallocx_ = Find("nallocx");
  PossibleSizes();
  Allocations();
  Impossible();
  InPlace();
  return failures != 0;
}
