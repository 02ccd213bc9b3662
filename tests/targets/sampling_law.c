/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations with known true numbers, one call path for each size, for the test of the sampling law.
 *
 *   sampling_law two keep|free     allocate_16: 32 Mi blocks of 16 bytes, allocate_32M: 16 blocks of 32 MiB
 *   sampling_law classes BYTES     for each size class of `CLASSES` about BYTES bytes in blocks of that size, kept
 *
 * `free` frees each block at once, so that memory stays small; this tests the estimate of all allocations, not the live
 * one. Prints for each path: NAME OBJECTS USABLE_BYTES.
 */
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

/* Kept blocks form one list, so that they are reachable and nothing else is allocated. Every block can hold a pointer:
 * the smallest class has 8 bytes. */
static void* kept;

static void keep(void* block) {
  *(void**)block = kept;
  kept = block;
}

static void report(const char* name, uint64_t objects, uint64_t bytes) {
  printf("%s %llu %llu\n", name, (unsigned long long)objects, (unsigned long long)bytes);
}

#define DEFINE_PATH(name, size)                                   \
  NOINLINE void allocate_##name(uint64_t count, bool keep_them) { \
    uint64_t bytes = 0;                                           \
    for (uint64_t i = 0; i < count; i++) {                        \
      void* volatile block = malloc(size);                        \
      bytes += malloc_usable_size(block);                         \
      if (keep_them) {                                            \
        keep(block);                                              \
      } else {                                                    \
        free(block);                                              \
      }                                                           \
    }                                                             \
    report("allocate_" #name, count, bytes);                      \
  }

/* All small size classes, and some large ones up to 1 MiB. */
/* clang-format off */
#define CLASSES(X) \
  X(8) X(16) X(32) X(48) X(64) X(80) X(96) X(112) X(128) X(160) X(192) X(224) X(256) X(320) X(384) X(448) \
  X(512) X(640) X(768) X(896) X(1024) X(1280) X(1536) X(1792) X(2048) X(2560) X(3072) X(3584) X(4096) X(5120) \
  X(6144) X(7168) X(8192) X(10240) X(12288) X(14336) X(16384) X(20480) X(28672) X(32768) X(65536) X(131072) \
  X(262144) X(524288) X(1048576)
/* clang-format on */

#define DEFINE_CLASS(size) DEFINE_PATH(size, size)
CLASSES(DEFINE_CLASS)
DEFINE_PATH(32M, (size_t)32 << 20)

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  if (argc == 3 && strcmp(argv[1], "two") == 0) {
    bool keep_them = strcmp(argv[2], "keep") == 0;
    allocate_16((uint64_t)32 << 20, keep_them);
    allocate_32M(16, keep_them);
  } else if (argc == 3 && strcmp(argv[1], "classes") == 0) {
    uint64_t bytes = strtoull(argv[2], NULL, 0);
#define RUN_CLASS(size) allocate_##size(bytes / (size) + 1, true);
    CLASSES(RUN_CLASS)
  } else {
    fprintf(stderr, "usage: sampling_law two keep|free | classes BYTES\n");
    return 2;
  }
  return 0;
}
