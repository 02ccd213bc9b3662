/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with its own allocator (small_allocator.h), driven like the puppet: prints "ready PID"; then for each line
 * "keep N SIZE" it allocates N blocks in foreign_keep(), for "churn N SIZE" it allocates and frees them, for "rate N 0"
 * it samples every Nth block from then on, for "unknown N SIZE" it says that N blocks are free that were no samples,
 * for "malloc N SIZE" it takes N blocks from malloc in foreign_malloc(), and answers "done".
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "small_allocator.h"

#define NOINLINE __attribute__((noinline, noclone))

static void* volatile sink;

NOINLINE void foreign_keep(long count, size_t size) {
  for (long i = 0; i < count; i++) {
    sink = small_allocate(size);
  }
}

NOINLINE void foreign_churn(long count, size_t size) {
  for (long i = 0; i < count; i++) {
    small_free(small_allocate(size));
  }
}

NOINLINE void foreign_malloc(long count, size_t size) {
  for (long i = 0; i < count; i++) {
    sink = malloc(size);
  }
}

/* Not foreign_keep(): its blocks are no samples. */
NOINLINE static void report_unknown(long count, size_t size) {
  for (long i = 0; i < count; i++) {
    small_report_free((char*)malloc(size) + 1);
  }
  small_report_free(NULL);
}

int main(void) {
  static char input[BUFSIZ], output[BUFSIZ];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  char line[256];
  while (fgets(line, sizeof line, stdin) != NULL) {
    long count = 0;
    size_t size = 0;
    if (sscanf(line, "keep %ld %zu", &count, &size) == 2) {
      foreign_keep(count, size);
    } else if (sscanf(line, "churn %ld %zu", &count, &size) == 2) {
      foreign_churn(count, size);
    } else if (sscanf(line, "rate %ld %zu", &count, &size) == 2) {
      small_set_rate((unsigned)count);
    } else if (sscanf(line, "unknown %ld %zu", &count, &size) == 2) {
      report_unknown(count, size);
    } else if (sscanf(line, "malloc %ld %zu", &count, &size) == 2) {
      foreign_malloc(count, size);
    }
    printf("done\n");
  }
  return 0;
}
