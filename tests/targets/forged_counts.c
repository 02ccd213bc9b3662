/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forges what it has counted itself (heaptap/contract.h, AREAS): fills the counts of all its areas, and the head and
 * the mailboxes too, with numbers of one kind. Then it keeps 1000 blocks of 64 bytes in keep_after().
 *
 * forged_counts KIND   ones: all bits set; random; moved: each count one entry further
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heaptap/contract.h"

#define NOINLINE __attribute__((noinline, noclone))
enum { BEFORE = 5000, AFTER = 1000 };

NOINLINE void keep_after(void) {
  for (int i = 0; i < AFTER; i++) {
    void* volatile block = malloc(64);
    (void)block;
  }
}

NOINLINE void churn(void) {
  for (int i = 0; i < BEFORE; i++) {
    void* volatile block = malloc(64);
    free(block);
  }
}

static void forge(char* begin, const char* kind) {
  if (strcmp(kind, "ones") == 0) {
    memset(begin, 0xff, HEAPTAP_AREA_BYTES);
  } else if (strcmp(kind, "random") == 0) {
    for (size_t i = 0; i < HEAPTAP_AREA_BYTES; i++) begin[i] = (char)rand();
  } else {
    char* const counts = begin + (1 + HEAPTAP_MAILBOXES) * HEAPTAP_AREA_PAGE_BYTES;
    const size_t bytes = (size_t)(begin + HEAPTAP_AREA_BYTES - counts);
    memmove(counts + sizeof(struct heaptap_counts), counts, bytes - sizeof(struct heaptap_counts));
  }
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  churn();
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  int areas = 0;
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    unsigned long begin, end;
    if (strstr(line, "bpf-map") == NULL || sscanf(line, "%lx-%lx", &begin, &end) != 2) continue;
    if (end - begin != HEAPTAP_AREA_BYTES) continue;
    forge((char*)begin, argv[1]);
    areas++;
  }
  if (maps != NULL) fclose(maps);
  keep_after();
  printf("%d\n", areas);
  return 0;
}
