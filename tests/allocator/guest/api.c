/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what the allocator answers, without addresses. The output over a host must be the same without the guest, with
 * it, and with it while allocations are samples.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "sampling.h"

static volatile size_t huge = SIZE_MAX;
static void* volatile sink;

/* The names by which programs recognise their allocator. */
extern void* mallocx(size_t, int) __attribute__((weak));
extern void* rallocx(void*, size_t, int) __attribute__((weak));
extern size_t xallocx(void*, size_t, size_t, int) __attribute__((weak));
extern size_t sallocx(const void*, int) __attribute__((weak));
extern void dallocx(void*, int) __attribute__((weak));
extern void sdallocx(void*, size_t, int) __attribute__((weak));
extern size_t nallocx(size_t, int) __attribute__((weak));
extern int mallctl(const char*, void*, size_t*, void*, size_t) __attribute__((weak));
extern void* tc_malloc(size_t) __attribute__((weak));
extern void tc_free(void*) __attribute__((weak));
extern size_t tc_malloc_size(void*) __attribute__((weak));
extern void mi_free(void*) __attribute__((weak));
extern void free_sized(void*, size_t) __attribute__((weak));

static void PrintNames(void) {
  printf("weak: %d%d%d%d%d%d%d%d%d%d%d%d%d\n", mallocx != NULL, rallocx != NULL, xallocx != NULL, sallocx != NULL,
         dallocx != NULL, sdallocx != NULL, nallocx != NULL, mallctl != NULL, tc_malloc != NULL, tc_free != NULL,
         tc_malloc_size != NULL, mi_free != NULL, free_sized != NULL);
  static const char* const kNames[] = {"mallocx", "sdallocx", "nallocx", "tc_malloc",  "tc_delete", "mi_free",
                                       "cfree",   "_Znwm",    "_ZdlPvm", "free_sized", "mallctl",   "mi_malloc"};
  for (size_t i = 0; i < sizeof(kNames) / sizeof(kNames[0]); i++) {
    printf("dlsym %s: %d\n", kNames[i], dlsym(RTLD_DEFAULT, kNames[i]) != NULL);
  }
}

static void PrintSizes(void) {
  for (size_t size = 0; size < 300000; size = size < 300 ? size + 7 : size + size / 7) {
    void* pointer = malloc(size);
    memset(pointer, 1, malloc_usable_size(pointer));
    printf("malloc %zu: %zu\n", size, malloc_usable_size(pointer));
  }
  printf("NULL: %zu\n", malloc_usable_size(NULL));
}

static int IsFilled(const unsigned char* bytes, size_t count, unsigned char value) {
  for (size_t i = 0; i < count; i++) {
    if (bytes[i] != value) return 0;
  }
  return 1;
}

/* Contents survive every step of a chain of sizes. */
static void PrintReallocs(void) {
  static const size_t kSizes[] = {1,      100,      10,       5000, 40000,  300,   1000000,
                                  200000, 40000000, 70000000, 16,   0x8000, 0x8001};
  unsigned char* pointer = NULL;
  size_t size = 0;
  for (size_t i = 0; i < sizeof(kSizes) / sizeof(kSizes[0]); i++) {
    unsigned char* moved = realloc(pointer, kSizes[i]);
    size_t kept = size < kSizes[i] ? size : kSizes[i];
    printf("realloc %zu to %zu: %d\n", size, kSizes[i], moved != NULL && IsFilled(moved, kept, (unsigned char)i));
    pointer = moved;
    size = kSizes[i];
    memset(pointer, (int)(i + 1), size);
  }
  errno = 0;
  printf("realloc to too much: %d %d", realloc(pointer, huge) == NULL, errno);
  printf(" and kept: %d\n", IsFilled(pointer, size, sizeof(kSizes) / sizeof(kSizes[0])));
  sink = realloc(pointer, 0);
  printf("realloc to 0: %d\n", sink == NULL);
  pointer = reallocarray(NULL, 10, 10);
  memset(pointer, 7, 100);
  pointer = reallocarray(pointer, 100, 100);
  printf("reallocarray: %d\n", IsFilled(pointer, 100, 7));
  errno = 0;
  printf("reallocarray of too much: %d %d\n", reallocarray(pointer, huge, 2) == NULL, errno);
}

static void PrintAligned(void) {
  for (size_t alignment = 8; alignment <= (64 << 20); alignment *= 2) {
    /* Not of size 0, which jemalloc forgets to align. */
    for (size_t size = 1; size < 100000; size = size * 3 + 1) {
      void* pointer = NULL;
      int result = posix_memalign(&pointer, alignment, size);
      int good = result == 0 && (uintptr_t)pointer % alignment == 0;
      memset(pointer, 1, size);
      free(pointer);
      pointer = memalign(alignment, size);
      good &= (uintptr_t)pointer % alignment == 0;
      pointer = realloc(pointer, size + 1000);
      good &= pointer != NULL;
      free(pointer);
      pointer = aligned_alloc(alignment, (size + alignment) / alignment * alignment);
      good &= (uintptr_t)pointer % alignment == 0;
      free(pointer);
      if (!good) printf("alignment %zu, size %zu: wrong\n", alignment, size);
    }
  }
  static char place;
  void* untouched = &place;
  void* pointer = untouched;
  int first = posix_memalign(&pointer, 3, 10);
  int second = posix_memalign(&pointer, 4, 10);
  int third = posix_memalign(&pointer, 64, huge);
  printf("posix_memalign: %d %d %d %d\n", first, second, third, pointer == untouched);
  pointer = valloc(1);
  printf("valloc: %zu\n", (uintptr_t)pointer % 4096);
  free(pointer);
  /* jemalloc has none, and dies of glibc's block. */
  if (mallocx != NULL) return;
#ifdef __GLIBC__ /* musl has none */
  pointer = pvalloc(1);
  printf("pvalloc: %zu %d\n", (uintptr_t)pointer % 4096, malloc_usable_size(pointer) >= 4096);
  free(pointer);
#endif
}

static void PrintFailures(void) {
  errno = 0;
  printf("malloc of too much: %d %d\n", malloc(huge) == NULL, errno);
  errno = 0;
  printf("malloc of half of it: %d %d\n", malloc(huge / 2) == NULL, errno);
  errno = 0;
  printf("calloc of too much: %d %d\n", calloc(huge, 2) == NULL, errno);
  errno = 0;
  printf("calloc of too many: %d %d\n", calloc(huge / 8, 16) == NULL, errno);
  errno = 77;
  free(malloc(100));
  free(NULL);
  printf("free keeps errno: %d\n", errno);
}

static void PrintZeros(void) {
  int good = 1;
  for (int round = 0; round < 3; round++) {
    for (size_t size = 1; size < 40000000; size *= 5) {
      unsigned char* pointer = calloc(size, 1);
      good &= IsFilled(pointer, size, 0);
      memset(pointer, 255, size);
      free(pointer);
    }
  }
  printf("calloc: %d\n", good);
}

static void PrintExtended(void) {
  if (mallocx != NULL) {
    for (size_t size = 1; size < 200000; size = size * 2 + 1) {
      /* Bits of flags: lg(alignment), and 0x40 for zeros. */
      unsigned char* pointer = mallocx(size, 6 | 0x40);
      printf("mallocx %zu: %zu %zu %zu %d", size, (uintptr_t)pointer % 64, sallocx(pointer, 0), nallocx(size, 6),
             IsFilled(pointer, size, 0));
      memset(pointer, 1, size);
      pointer = rallocx(pointer, size * 2, 0x40);
      printf(" %d", IsFilled(pointer, size, 1) && IsFilled(pointer + size, size, 0));
      printf(" %d\n", xallocx(pointer, size * 2, 0, 0) >= size * 2);
      sdallocx(pointer, size * 2, 0);
      pointer = malloc(size);
      dallocx(pointer, 0);
      pointer = malloc(size);
      sdallocx(pointer, size, 0);
    }
    const char* version = NULL;
    size_t length = sizeof(version);
    printf("mallctl: %d %s\n", mallctl("version", &version, &length, NULL, 0), version);
  }
  if (tc_malloc != NULL) {
    void* pointer = tc_malloc(100);
    printf("tc_malloc: %zu\n", tc_malloc_size(pointer));
    free(pointer);
    tc_free(malloc(100));
  }
  if (mi_free != NULL) mi_free(malloc(100));
  if (free_sized != NULL) free_sized(malloc(100), 100);
}

int main(void) {
  static char buffer[1 << 20];
  setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
  SwitchSamplingOn();
  PrintNames();
  PrintSizes();
  PrintReallocs();
  PrintAligned();
  PrintFailures();
  PrintZeros();
  PrintExtended();
  SwitchSamplingOff();
  fflush(stdout);
  return 0;
}
