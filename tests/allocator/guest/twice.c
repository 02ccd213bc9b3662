/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees each of some blocks twice while all allocations are samples. The second free must change nothing: no block is
 * given away twice, and no block that lives loses its memory.
 */
#include <stdio.h>
#include <string.h>

#include "sampling.h"

enum { kBlocks = 4 };

static void* volatile block;

/* Frees `first` of this size twice, and checks that others of the size stay apart. */
static int IsApart(size_t size) {
  char* blocks[kBlocks];
  char* kept = malloc(size);
  memset(kept, 'k', size);
  block = malloc(size);
  void* volatile again = block;
  free(block);
  free(again);
  for (int i = 0; i < kBlocks; i++) {
    blocks[i] = malloc(size);
    memset(blocks[i], 'a' + i, size);
  }
  /* A slab or a run whose memory was given away would be overwritten. */
  char* other = malloc(60000);
  memset(other, 'o', 60000);
  int is_apart = kept[0] == 'k' && kept[size - 1] == 'k';
  for (int i = 0; i < kBlocks; i++) is_apart &= blocks[i][0] == 'a' + i && blocks[i][size - 1] == 'a' + i;
  for (int i = 0; i < kBlocks; i++) free(blocks[i]);
  free(other);
  free(kept);
  return is_apart;
}

int main(void) {
  SwitchSamplingOn();
  for (size_t size = 16; size <= 32768; size *= 2) {
    if (!IsApart(size)) {
      printf("blocks of %zu bytes share memory\n", size);
      return 1;
    }
  }
  return 0;
}
