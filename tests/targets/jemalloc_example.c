/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A typical program for jemalloc: with its header, its extended functions and mallctl. The same source is built for
 * jemalloc and for heaptap. Leaks 30 blocks of 1000 bytes and 20 of 5000 in two functions. Commands:
 *
 *   leak           nothing else
 *   dump PATH      prof.dump into that file before it ends; prints what mallctl returned
 *   name PATH      the same by mallctlnametomib and mallctlbymib
 *   sizes          prints the size classes by name and number
 *   stats OPTIONS  malloc_stats_print to stdout
 */
#include <jemalloc/jemalloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if JEMALLOC_VERSION_MAJOR < 5
#error "jemalloc 5 or newer"
#endif

/* Options of the program itself; MALLOC_CONF comes after them, as in jemalloc. */
#ifdef PROGRAM_CONF
const char* malloc_conf = PROGRAM_CONF;
#endif

static void* volatile kept;

void leak_small(void) {
  for (int i = 0; i < 30; i++) kept = mallocx(1000, MALLOCX_ZERO | MALLOCX_ALIGN(16) | MALLOCX_TCACHE_NONE);
}

void leak_large(void) {
  for (int i = 0; i < 20; i++) {
    void* block = malloc(2000);
    kept = rallocx(block, 5000, MALLOCX_LG_ALIGN(3));
  }
}

static void borrow(void) {
  for (int i = 0; i < 100; i++) {
    void* block = mallocx(500, 0);
    if (sallocx(block, 0) != nallocx(500, 0)) abort();
    sdallocx(block, 500, 0);
  }
}

static int dump(const char* path) { return mallctl("prof.dump", NULL, NULL, &path, sizeof(path)); }

static int dump_by_number(const char* path) {
  size_t mib[2];
  size_t length = 2;
  int error = mallctlnametomib("prof.dump", mib, &length);
  return error != 0 ? error : mallctlbymib(mib, length, NULL, NULL, &path, sizeof(path));
}

static int print_sizes(void) {
  unsigned count;
  size_t size = sizeof(count);
  size_t mib[4];
  size_t length = 4;
  if (mallctl("arenas.nbins", &count, &size, NULL, 0) != 0) return 1;
  if (mallctlnametomib("arenas.bin.0.size", mib, &length) != 0) return 1;
  for (unsigned i = 0; i < count; i++) {
    size_t bytes;
    size = sizeof(bytes);
    mib[2] = i;
    if (mallctlbymib(mib, length, &bytes, &size, NULL, 0) != 0) return 1;
    printf("%zu\n", bytes);
  }
  return 0;
}

static void print(void* stream, const char* text) { fputs(text, stream); }

int main(int argc, char** argv) {
  leak_small();
  leak_large();
  borrow();
  const char* command = argc > 1 ? argv[1] : "leak";
  const char* argument = argc > 2 ? argv[2] : NULL;
  if (strcmp(command, "dump") == 0) printf("mallctl %d\n", dump(argument));
  if (strcmp(command, "name") == 0) printf("mallctl %d\n", dump_by_number(argument));
  if (strcmp(command, "sizes") == 0) return print_sizes();
  if (strcmp(command, "stats") == 0) malloc_stats_print(print, stdout, argument);
  return 0;
}
