/* SPDX-License-Identifier: Apache-2.0 */
#include "small_allocator.h"

#include <stdint.h>
#include <sys/mman.h>

#include "probe_note.h"

/* A USDT probe: a nop, and its note. What follows the note's text are the registers of its arguments, as inputs of the
 * statement. */
/* clang-format off */
#define PROBE(provider, name, note, ...)                                      \
  __asm__ volatile(                                                           \
      "990: nop\n"                                                            \
      PROBE_NOTE(#provider, #name, #provider "_" #name "_semaphore", note) ::__VA_ARGS__ \
      : "memory")
/* clang-format on */

#define SEMAPHORE __attribute__((section(".probes"), visibility("hidden"), used))
SEMAPHORE volatile unsigned short otel_memory_alloc_semaphore;
SEMAPHORE volatile unsigned short otel_memory_free_semaphore;

#define NOINLINE __attribute__((noinline, noclone))

static NOINLINE void probe_alloc(void* block, uint64_t size, uint64_t weighted_bytes) {
  PROBE(otel_memory, alloc, "8@%%rdi 8@%%rsi 8@%%rdx", "D"(block), "S"(size), "d"(weighted_bytes));
}

static NOINLINE void probe_free(void* block) { PROBE(otel_memory, free, "8@%%rdi", "D"(block)); }

/* In front of each block. */
struct header {
  size_t size;
  size_t sampled;
};

enum { ARENA_BYTES = 64 << 20 };
static char *next, *end;
static unsigned sample_every = SMALL_SAMPLE_EVERY;
static unsigned until_sample = SMALL_SAMPLE_EVERY;

/* Only for one thread, and freed blocks are not reused: only the probes matter here. */
void* small_allocate(size_t size) {
  size = (size + 15) & ~(size_t)15;
  if (next == NULL) {
    next = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED) {
      next = NULL;
      return NULL;
    }
    end = next + ARENA_BYTES;
  }
  if ((size_t)(end - next) < sizeof(struct header) + size) {
    return NULL;
  }
  struct header* header = (struct header*)next;
  next += sizeof(struct header) + size;
  header->size = size;
  if (--until_sample == 0) {
    until_sample = sample_every;
    if (otel_memory_alloc_semaphore != 0) {
      header->sampled = 1;
      probe_alloc(header + 1, size, size * sample_every);
    }
  }
  return header + 1;
}

void small_free(void* block) {
  struct header* header = (struct header*)block - 1;
  if (header->sampled) {
    probe_free(block);
  }
}

void small_set_rate(unsigned every) { sample_every = until_sample = every; }

void small_report_free(void* block) {
  if (otel_memory_free_semaphore != 0) {
    probe_free(block);
  }
}
