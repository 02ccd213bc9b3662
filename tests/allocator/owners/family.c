/* SPDX-License-Identifier: Apache-2.0 */
/* Uses malloc's family, of which own_malloc.c has a part, and prints what the owner of this part has counted. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counts.h"

static void Print(const char* function) {
  struct counts counted = Counts();
  printf("%-20s allocated %ld, freed %ld, foreign %ld\n", function, counted.allocated, counted.freed, counted.foreign);
}

/* The size tells whose block it is. Its own blocks have none that libc knows. */
static void Measure(const char* function, void* block) {
#if FAMILY == 0
  printf("%zu bytes of ", malloc_usable_size(block));
#endif
  memset(block, 1, 100);
  free(realloc(block, 1000));
  Print(function);
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  Print("the beginning");
  free(malloc(100));
  free(calloc(10, 10));
  free(realloc(malloc(100), 200));
  Print("malloc");
  free(reallocarray(malloc(100), 20, 10));
  Print("reallocarray");
  free(strdup("text"));
  fclose(open_memstream(&(char*){NULL}, &(size_t){0}));
  Print("strdup");
#if FAMILY != 0
  void* block = malloc(100);
  printf("at least 100 bytes: %d\n", malloc_usable_size(block) >= 100);
  free(block);
#endif
  void* aligned = NULL;
  if (posix_memalign(&aligned, 64, 100) != 0) return 1;
  Measure("posix_memalign", aligned);
  Measure("aligned_alloc", aligned_alloc(64, 128));
  Measure("memalign", memalign(64, 100));
  Measure("valloc", valloc(100));
  Measure("pvalloc", pvalloc(100));
  return 0;
}
