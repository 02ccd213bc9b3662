/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small malloc that a program has linked in: blocks of powers of two, each with a header. It dies of a block that it
 * has not made, and of one that is freed twice. For programs with one thread.
 */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CLASSES = 40, SLAB = 1 << 20, HEADER = 16 };
static const uint64_t kUsed = 0x6f776e5f75736564, kFree = 0x6f776e5f66726565;

struct header {
  uint64_t state;
  uint32_t class;
  uint32_t offset; /* of the block, from the beginning of its memory */
};

static char* free_memory[CLASSES];
static char *slab, *slab_end;

static void die(const char* text) {
  ssize_t written = write(2, text, strlen(text));
  (void)written;
  _exit(99);
}

static struct header* header_of(void* block) {
  struct header* header = (struct header*)((char*)block - HEADER);
  if (header->state != kUsed) die("own malloc: not a block\n");
  return header;
}

static void* take(size_t alignment, size_t size) {
  unsigned class = 5;
  while (class < CLASSES && ((size_t)1 << class) < size + HEADER + alignment) class ++;
  if (size > ((size_t)1 << 38) || class == CLASSES) {
    errno = ENOMEM;
    return NULL;
  }
  char* memory = free_memory[class];
  const size_t bytes = (size_t)1 << class;
  if (memory != NULL) {
    memcpy(&free_memory[class], memory, sizeof(char*));
  } else {
    if (slab == NULL || (size_t)(slab_end - slab) < bytes) {
      const size_t wanted = bytes > SLAB ? bytes : SLAB;
      slab = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (slab == MAP_FAILED) die("own malloc: no memory\n");
      slab_end = slab + wanted;
    }
    memory = slab;
    slab += bytes;
  }
  char* block = (char*)(((uintptr_t)memory + HEADER + alignment - 1) & ~(alignment - 1));
  struct header* header = (struct header*)(block - HEADER);
  header->state = kUsed;
  header->class = class;
  header->offset = (uint32_t)(block - memory);
  return block;
}

size_t malloc_usable_size(void* block) {
  if (block == NULL) return 0;
  const struct header* header = header_of(block);
  return ((size_t)1 << header->class) - header->offset;
}

void free(void* block) {
  if (block == NULL) return;
  struct header* header = header_of(block);
  header->state = kFree;
  char* memory = (char*)block - header->offset;
  const unsigned class = header->class;
  memcpy(memory, &free_memory[class], sizeof(char*));
  free_memory[class] = memory;
}

void* malloc(size_t size) { return take(16, size); }

void* calloc(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  void* block = take(16, bytes);
  if (block != NULL) memset(block, 0, bytes);
  return block;
}

void* realloc(void* block, size_t size) {
  void* moved = take(16, size);
  if (moved == NULL || block == NULL) return moved;
  const size_t before = malloc_usable_size(block);
  memcpy(moved, block, before < size ? before : size);
  free(block);
  return moved;
}

void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : realloc(block, bytes);
}

void* aligned_alloc(size_t alignment, size_t size) { return take(alignment < 16 ? 16 : alignment, size); }
void* memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  void* block = aligned_alloc(alignment, size);
  if (block == NULL) return ENOMEM;
  *result = block;
  return 0;
}
