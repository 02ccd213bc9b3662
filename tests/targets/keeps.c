/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeps COUNT: the first thing that it does is to allocate COUNT blocks of 64 bytes; it allocates nothing else. Then it
 * says "kept" and waits for the end of its input.
 */
#include <stdlib.h>
#include <unistd.h>

enum { SIZE = 64 };

int main(int count, char** arguments) {
  if (count != 2) return 2;
  for (long i = atol(arguments[1]); i > 0; i--) {
    void* volatile block = malloc(SIZE);
    if (block == NULL) return 1;
  }
  char byte;
  if (write(STDOUT_FILENO, "kept\n", 5) != 5) return 1;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
