// SPDX-License-Identifier: Apache-2.0
//
//   statistics_print [OPTIONS]
//
// Allocates blocks of many sizes, frees some of them, and prints the statistics of the preloaded allocator, in the
// default form of malloc_stats_print.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 2000 };

int main(int count, char** arguments) {
  void (*print)(void (*write)(void*, const char*), void*, const char*) =
      (void (*)(void (*)(void*, const char*), void*, const char*))dlsym(RTLD_DEFAULT, "malloc_stats_print");
  if (print == NULL) return 2;
  static void* blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = malloc(8 + i * 40);
    if (blocks[i] == NULL) return 2;
    memset(blocks[i], 1, 8 + i * 40);
  }
  for (size_t i = 0; i < BLOCKS; i += 2) free(blocks[i]);
  print(NULL, NULL, count > 1 ? arguments[1] : NULL);
  return 0;
}
