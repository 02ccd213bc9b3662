/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large blocks: sizes at the edge of what exists, what a program does to the pages of a block and does not undo, sparse
 * blocks. Prints what the allocator answers; the output over a host must be the same without the guest, with it, and
 * with it while allocations are samples.
 *
 *   pages edges | pages | sparse | grants
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sampling.h"

enum { kPage = 4096, kMiB = 1 << 20 };

static const size_t kSizes[] = {200 * 1000, kMiB, 8 * kMiB, 15 * kMiB, 20 * kMiB, 64 * kMiB};
#define FOR_EACH_SIZE(size) for (const size_t* size = kSizes; size != kSizes + sizeof(kSizes) / sizeof(*kSizes); size++)

static void* volatile sink;

/* --- sizes --- */

static void PrintRefusal(const char* what, size_t size, void* block) {
  printf("%s %#zx: %s\n", what, size, block == NULL ? "NULL" : "granted");
  if (block != NULL) free(block);
}

static void PrintEdges(void) {
  static const size_t kDistances[] = {0,  1,  2,  7,    8,    14,   15,   16,    17,
                                      23, 24, 25, 4080, 4095, 4096, 4097, 70000, 1 << 25};
  static const size_t kEdges[] = {PTRDIFF_MAX, SIZE_MAX, (size_t)PTRDIFF_MAX + 1 + (1 << 25)};
  void* live = malloc(100);
  for (size_t e = 0; e < sizeof(kEdges) / sizeof(*kEdges); e++) {
    for (size_t d = 0; d < sizeof(kDistances) / sizeof(*kDistances); d++) {
      volatile size_t size = kEdges[e] - kDistances[d];
      errno = 0;
      PrintRefusal("malloc", size, malloc(size));
      if (errno != ENOMEM) printf("errno %d\n", errno);
      PrintRefusal("calloc", size, calloc(1, size));
      void* moved = realloc(live, size);
      printf("realloc %#zx: %s\n", size, moved == NULL ? "NULL" : "granted");
      if (moved != NULL) live = moved;
      PrintRefusal("reallocarray", size, reallocarray(NULL, 1, size));
      PrintRefusal("memalign", size, memalign(64, size));
      PrintRefusal("aligned_alloc", size, aligned_alloc(kPage, size));
      PrintRefusal("valloc", size, valloc(size));
      void* block = NULL;
      printf("posix_memalign %#zx: %d\n", size, posix_memalign(&block, kPage, size));
    }
  }
  memset(live, 1, 100);
  free(live);
}

/* --- pages --- */

/* The block that a program gets after it has done something to the pages of another one of this size. */
static unsigned char* Next(size_t size, int what, size_t offset) {
  void* block;
  if (posix_memalign(&block, kPage, size) != 0) _exit(3);
  memset(block, 0x55, size);
  char* begin = (char*)block + offset;
  if (what < 0 ? mprotect(begin, kPage, PROT_NONE) : madvise(begin, kPage, what)) _exit(4);
  free(block);
  if (posix_memalign(&block, kPage, size) != 0) _exit(5);
  memset(block, 0x66, size);
  return block;
}

/* What a child of fork finds in the block. */
static const char* InChild(const unsigned char* block, size_t size) {
  const pid_t child = fork();
  if (child == 0) {
    for (size_t i = 0; i < size; i += 64) {
      if (block[i] != 0x66) _exit(1);
    }
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? "a fault" : status == 0 ? "the data" : "other data";
}

static void PrintPages(void) {
  FOR_EACH_SIZE(size) {
    const size_t offsets[] = {0, *size / 2 / kPage * kPage, (*size - kPage) / kPage * kPage};
    for (size_t i = 0; i < 3; i++) {
      unsigned char* block = Next(*size, -1, offsets[i]);
      printf("%zu after mprotect at %zu: ok\n", *size, offsets[i]);
      free(block);
      block = Next(*size, MADV_DONTFORK, offsets[i]);
      printf("%zu after MADV_DONTFORK at %zu: %s\n", *size, offsets[i], InChild(block, *size));
      free(block);
      block = Next(*size, MADV_WIPEONFORK, offsets[i]);
      printf("%zu after MADV_WIPEONFORK at %zu: %s\n", *size, offsets[i], InChild(block, *size));
      free(block);
    }
  }
}

/* --- sparse blocks --- */

static long KiB(const char* key) {
  char line[256];
  long value = -1;
  FILE* file = fopen("/proc/self/status", "re");
  while (fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, key, strlen(key)) == 0) value = atol(line + strlen(key) + 1);
  }
  fclose(file);
  return value;
}

/* Blocks of which one page each is used, three times; a block of which few pages are used, and which grows. */
static void PrintSparse(void) {
  enum { kBlocks = 40 };
  void* blocks[kBlocks];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < kBlocks; i++) {
      blocks[i] = malloc(8 * kMiB);
      memset(blocks[i], 1, 10);
    }
    for (int i = 0; i < kBlocks; i++) free(blocks[i]);
  }
  printf("after sparse blocks: %s\n", KiB("VmHWM") < 60 << 10 ? "little is resident" : "much is resident");
  size_t size = 30 * kMiB;
  char* block = calloc(1, size);
  block[0] = 1;
  for (int step = 2; step < 10; step++) {
    block[size - 1] = (char)step;
    block = realloc(block, size += 90 * kMiB);
    if (block == NULL || block[0] != 1 || block[30 * kMiB - 1] != 2 || block[size - 1 - 90 * kMiB] != step) _exit(3);
    /* Not moved by the next allocation. */
    sink = malloc(20 * kMiB);
  }
  block = realloc(block, 50 * kMiB);
  if (block[0] != 1 || block[30 * kMiB - 1] != 2) _exit(4);
  printf("after a growing block: %s\n", KiB("VmHWM") < 120 << 10 ? "little is resident" : "much is resident");
  /* A core file has what is mapped, and limits count it. */
  printf("%s is mapped\n", KiB("VmSize") < 1 << 20 ? "little" : "much");
  free(block);
}

/* --- more than there is --- */

static void PrintGrants(void) {
  for (size_t lg = 33; lg < 45; lg++) {
    void* block = malloc((size_t)1 << lg);
    printf("malloc 2^%zu: %s\n", lg, block == NULL ? "NULL" : "granted");
    free(block);
    block = calloc(1, (size_t)1 << lg);
    printf("calloc 2^%zu: %s\n", lg, block == NULL ? "NULL" : "granted");
    free(block);
  }
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*print)(void);
  } kWays[] = {{"edges", PrintEdges}, {"pages", PrintPages}, {"sparse", PrintSparse}, {"grants", PrintGrants}};
  SwitchSamplingOn();
  for (size_t i = 0; argc == 2 && i < sizeof(kWays) / sizeof(*kWays); i++) {
    if (strcmp(argv[1], kWays[i].name) != 0) continue;
    kWays[i].print();
    return 0;
  }
  return 2;
}
