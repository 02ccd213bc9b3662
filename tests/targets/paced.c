/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates at an even pace, and counts: paced PER_SECOND SECONDS [KEPT [BITS]]
 *
 * PER_SECOND blocks a second, for SECONDS or until SIGTERM, whichever is first; 0 seconds: without end. Blocks have 64
 * to 1087 bytes; each comes through one of the 2^BITS call paths of go_left() and go_right() (default 0: one path) to
 * allocate_block(). The last KEPT blocks (default 1000) stay live; older ones are freed.
 *
 * Prints "ready PID" at the beginning, and at its end
 *
 *   allocated OBJECTS BYTES live OBJECTS BYTES seconds SECONDS
 *
 * in usable bytes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { MOST_KEPT = 1 << 20, TICK_NANOSECONDS = 1000000 };
static const uint64_t second = 1000000000;

static void* kept[MOST_KEPT];
static volatile sig_atomic_t is_over;

void go_left(uint64_t path, int depth, void** block, size_t size);
void go_right(uint64_t path, int depth, void** block, size_t size);

NOINLINE void* allocate_block(size_t size) { return malloc(size); }

NOINLINE void descend(uint64_t path, int depth, void** block, size_t size) {
  if (depth == 0) {
    *block = allocate_block(size);
  } else if (path & 1) {
    go_right(path >> 1, depth - 1, block, size);
  } else {
    go_left(path >> 1, depth - 1, block, size);
  }
}

NOINLINE void go_left(uint64_t path, int depth, void** block, size_t size) { descend(path, depth, block, size); }
NOINLINE void go_right(uint64_t path, int depth, void** block, size_t size) { descend(path, depth, block, size); }

static void on_end(int number) { is_over = number; }

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * second + (uint64_t)time.tv_nsec;
}

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOLBF, sizeof output);
  if (argc < 3) {
    fprintf(stderr, "usage: paced PER_SECOND SECONDS [KEPT [BITS]]\n");
    return 2;
  }
  uint64_t per_second = strtoull(argv[1], NULL, 0);
  uint64_t limit = strtoull(argv[2], NULL, 0) * second;
  size_t most_kept = argc > 3 ? strtoul(argv[3], NULL, 0) : 1000;
  int bits = argc > 4 ? atoi(argv[4]) : 0;
  if (most_kept == 0 || most_kept > MOST_KEPT) {
    return 2;
  }
  signal(SIGTERM, on_end);
  uint64_t begin = now(), time = begin, count = 0, bytes = 0;
  printf("ready %d\n", (int)getpid());
  while (!is_over && (limit == 0 || time - begin < limit)) {
    struct timespec tick = {0, TICK_NANOSECONDS};
    for (uint64_t due = (time - begin) / 1000 * per_second / (second / 1000); count < due && !is_over; count++) {
      void** slot = &kept[count % most_kept];
      free(*slot);
      descend(count * 0x9e3779b97f4a7c15u >> 32, bits, slot, 64 + count * 37 % 1024);
      bytes += malloc_usable_size(*slot);
    }
    nanosleep(&tick, NULL);
    time = now();
  }
  uint64_t live = 0, live_bytes = 0;
  for (size_t i = 0; i < most_kept && kept[i] != NULL; i++) {
    live++;
    live_bytes += malloc_usable_size(kept[i]);
  }
  printf("allocated %llu %llu live %llu %llu seconds %.3f\n", (unsigned long long)count, (unsigned long long)bytes,
         (unsigned long long)live, (unsigned long long)live_bytes, (double)(time - begin) / (double)second);
  return 0;
}
