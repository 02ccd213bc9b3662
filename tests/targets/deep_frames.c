/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates COUNT blocks at once, on a stack of about 200 KiB, and ends. Compiled without frame pointers.
 *
 *   deep_frames COUNT
 */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { FRAME_BYTES = 64 << 10 };

static void* volatile kept;

NOINLINE void deep_inner(volatile char* caller, long count) {
  volatile char frame[FRAME_BYTES];
  frame[0] = caller[0];
  while (count-- > 0) kept = malloc(16);
  frame[1] = frame[0];
}

NOINLINE void deep_middle(volatile char* caller, long count) {
  volatile char frame[FRAME_BYTES];
  frame[0] = caller[0];
  deep_inner(frame, count);
  frame[1] = frame[0];
}

NOINLINE void deep_outer(long count) {
  volatile char frame[FRAME_BYTES];
  frame[0] = 0;
  deep_middle(frame, count);
  frame[1] = frame[0];
}

int main(int argc, char** argv) {
  deep_outer(argc > 1 ? atol(argv[1]) : 1);
  return 0;
}
