/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of live blocks: each step frees the oldest and allocates another.
 *
 *   ring fixed|small|wide PAIRS [sampling]
 *
 * fixed: 64 bytes. small: 16 to 1039 bytes, uniform. wide: 16 bytes to 16 KiB, uniform. The sizes are drawn before the
 * steps begin, so that a step is two calls and a few instructions. `sampling` sets the semaphore of heaptap's probe, so
 * that heaptap samples (needs heaptap preloaded).
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heaptap/contract.h"

enum { kRing = 1024, kSizes = 65536 };

static void* ring[kRing];
static uint16_t sizes[kSizes];

static uint32_t Random(void) {
  static uint32_t state = 2463534242;
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

static void Listen(void) {
  struct heaptap_control* control = dlsym(RTLD_DEFAULT, HEAPTAP_CONTROL_SYMBOL);
  if (control == NULL) {
    fprintf(stderr, "ring: heaptap is not loaded\n");
    exit(2);
  }
  *(volatile uint16_t*)control->alloc_semaphore = 1;
}

__attribute__((noinline)) static void Steps(long pairs) {
  for (long i = 0; i < pairs; i++) {
    void** slot = &ring[i % kRing];
    free(*slot);
    *slot = malloc(sizes[i % kSizes]);
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: ring fixed|small|wide PAIRS [sampling]\n");
    return 2;
  }
  unsigned least = strcmp(argv[1], "fixed") == 0 ? 64 : 16;
  unsigned range = strcmp(argv[1], "fixed") == 0 ? 1 : strcmp(argv[1], "small") == 0 ? 1024 : 16384 - 15;
  for (int i = 0; i < kSizes; i++) sizes[i] = (uint16_t)(least + Random() % range);
  if (argc > 3) Listen();
  Steps(atol(argv[2]));
  return 0;
}
