/* SPDX-License-Identifier: Apache-2.0 */
/* A program with its own malloc, which takes memory and keeps it. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char arena[64 << 20];
static size_t used;

void* malloc(size_t size) {
  used = (used + 15) & ~(size_t)15;
  memcpy(arena + used, &size, sizeof(size));
  void* block = arena + used + 16;
  used += 16 + size;
  return block;
}
void free(void* pointer) { (void)pointer; }
void* calloc(size_t count, size_t size) { return malloc(count * size); }
void* realloc(void* pointer, size_t size) {
  void* block = malloc(size);
  size_t old;
  if (pointer == NULL) return block;
  memcpy(&old, (char*)pointer - 16, sizeof(old));
  return memcpy(block, pointer, old < size ? old : size);
}

int main(void) {
  /* It comes from another library, and gets a block of this program. */
  char* text = reallocarray(strcpy(malloc(10), "its own"), 10, 10);
  return text != NULL && puts(text) > 0 ? 0 : 1;
}
