/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates and keeps blocks of one size until malloc says NULL, below a limit of its own.
 *
 *   until_null SIZE MIB   the address space may grow by MIB from the start on
 *
 * Prints how many blocks it has. Dies of a NULL that is not an ENOMEM.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void* volatile kept;

__attribute__((noinline)) static void* KeepUntilNull(size_t size, long* count) {
  void* last = NULL;
  for (*count = 0;; ++*count) {
    void* block = malloc(size);
    if (block == NULL) return last;
    memcpy(block, &last, sizeof(last));
    last = block;
  }
}

static void LimitAddressSpace(size_t growth) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "re");
  if (file == NULL || fscanf(file, "%ld", &pages) != 1) exit(2);
  fclose(file);
  const size_t limit = (size_t)(pages * sysconf(_SC_PAGESIZE)) + growth;
  const struct rlimit limits = {limit, limit};
  if (setrlimit(RLIMIT_AS, &limits) != 0) exit(2);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  static char buffer[BUFSIZ];
  setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
  LimitAddressSpace((size_t)atoi(argv[2]) << 20);
  long count;
  kept = KeepUntilNull((size_t)atoi(argv[1]), &count);
  if (errno != ENOMEM) return 3;
  printf("kept %ld\n", count);
  return 0;
}
