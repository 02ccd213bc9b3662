/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to preload: somebody sets the wall clock of one process. It is ahead by the seconds in the file that the
 * environment variable CLOCK_SHIFT names (8 bytes, a signed number), which a test may change at any time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int (*read_clock)(clockid_t clock, struct timespec* time);

static read_clock original;
static volatile const int64_t* shift;

__attribute__((constructor)) static void begin(void) {
  original = (read_clock)dlsym(RTLD_NEXT, "clock_gettime");
  const char* name = getenv("CLOCK_SHIFT");
  int file = name != NULL ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) shift = mapped;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  if (original == NULL) begin();
  int result = original(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && shift != NULL) time->tv_sec += *shift;
  return result;
}
