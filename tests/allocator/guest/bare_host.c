/* SPDX-License-Identifier: Apache-2.0 */
/* A host with the least that an allocator has: no malloc_usable_size, no aligned blocks. It dies of blocks that are not
 * its own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC UINT64_C(0x6261726520686f73)

struct header {
  uint64_t magic;
  size_t size;
};

void* malloc(size_t size) {
  if (size > SIZE_MAX / 2) return NULL;
  struct header* header =
      mmap(NULL, sizeof(*header) + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (header == MAP_FAILED) return NULL;
  *header = (struct header){MAGIC, size};
  return header + 1;
}

static struct header* HeaderOf(void* pointer) {
  struct header* header = (struct header*)pointer - 1;
  if (header->magic != MAGIC) abort();
  return header;
}

void free(void* pointer) {
  if (pointer == NULL) return;
  struct header* header = HeaderOf(pointer);
  munmap(header, sizeof(*header) + header->size);
}

void* calloc(size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : malloc(bytes);
}

void* realloc(void* pointer, size_t size) {
  void* moved = malloc(size);
  if (moved == NULL || pointer == NULL) return moved;
  size_t old = HeaderOf(pointer)->size;
  memcpy(moved, pointer, old < size ? old : size);
  free(pointer);
  return moved;
}
