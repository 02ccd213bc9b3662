/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates and frees in its own functions and then prints the result of experimental.prof_recent.alloc_dump; with a
 * second argument, it also writes a log to that file (prof.log_start).
 *
 *   recent MAXIMUM [LOG]      ends with the error of the last call that failed
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

int mallctl(const char* name, void* old, size_t* old_length, void* new, size_t new_length) __attribute__((weak));

#define NOINLINE __attribute__((noinline, noclone))

static void* volatile blocks[10];

NOINLINE static void keep_block(int i) { blocks[i] = malloc(1000); }

NOINLINE static void drop_block(int i) { free(blocks[i]); }

static void write_text(void* stream, const char* text) { fputs(text, stream); }

static int set(const char* name, void* value, size_t length) {
  int error = mallctl(name, NULL, NULL, value, length);
  if (error != 0) fprintf(stderr, "%s: %d\n", name, error);
  return error;
}

int main(int argc, char** argv) {
  /* Makes stdio allocate its buffer now, before the samples. */
  static char buffer[1 << 16];
  setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
  if (mallctl == NULL || argc < 2) return 1;
  ssize_t maximum = atol(argv[1]);
  const char* log = argv[2];
  const char* name = "recorder";
  int error = set("thread.prof.name", &name, sizeof(name));
  error |= set("experimental.prof_recent.alloc_max", &maximum, sizeof(maximum));
  if (argc > 2) error |= set("prof.log_start", &log, sizeof(log));
  for (int i = 0; i < 10; i++) keep_block(i);
  for (int i = 0; i < 10; i += 2) drop_block(i);
  struct {
    void (*write)(void* opaque, const char* text);
    void* opaque;
  } writer = {write_text, stdout};
  error |= set("experimental.prof_recent.alloc_dump", &writer, sizeof(writer));
  if (argc > 2) error |= set("prof.log_stop", NULL, 0);
  return error;
}
