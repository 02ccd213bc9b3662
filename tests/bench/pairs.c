/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the nanoseconds of processor time of a malloc+free pair: the least of many short rounds, so that what else the
 * machine does is left out. Blocks of 16 to 1023 bytes, 64 of them live. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 300, PAIRS = 20000, LIVE = 64 };

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(void) {
  static void* live[LIVE];
  uint32_t random = 1;
  double least = 1e9;
  for (int round = 0; round < ROUNDS; round++) {
    double begin = Now();
    for (int i = 0; i < PAIRS; i++) {
      random = random * 1664525 + 1013904223;
      free(live[random >> 8 & (LIVE - 1)]);
      live[random >> 8 & (LIVE - 1)] = malloc(16 + (random >> 14) % 1008);
    }
    double pair = (Now() - begin) / PAIRS;
    if (pair < least) least = pair;
  }
  printf("%.3f\n", least);
  return 0;
}
