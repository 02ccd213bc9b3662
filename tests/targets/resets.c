/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begins new books N times, with a sample in each: resets N.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

int mallctl(const char* name, void* old, size_t* old_length, void* new, size_t new_length) __attribute__((weak));

int main(int argc, char** argv) {
  if (argc != 2 || mallctl == NULL) return 1;
  for (long i = atol(argv[1]); i > 0; i--) {
    void* volatile block = malloc(100);
    if (mallctl("prof.reset", NULL, NULL, NULL, 0) != 0) return 1;
    free(block);
  }
  return 0;
}
