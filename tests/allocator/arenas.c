/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   arenas SEED [STEPS]
 *
 * A random sequence of what a program can do with arenas: make, use, reset and destroy them, bind its thread to one,
 * move blocks between them, and ask for their figures. Prints what must be the same on jemalloc and on heaptap: run it
 * with one or the other preloaded, and MALLOC_CONF=narenas:1,oversize_threshold:0, with which jemalloc too has one
 * arena at first. Exit status 1 if a promise that holds on both is broken.
 *
 * Blocks go back without a thread cache, which would keep them allocated in jemalloc's figures.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "find.h"
#include "heaptap/heaptap.h"

static int (*mallctl_)(const char*, void*, size_t*, void*, size_t);
static void* (*mallocx_)(size_t, int);
static void* (*rallocx_)(void*, size_t, int);
static size_t (*sallocx_)(const void*, int);
static void (*dallocx_)(void*, int);

/* Marsaglia's xorshift64*. */
static uint64_t state;
static uint64_t Draw(uint64_t below) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (state * 2685821657736338717u >> 11) % below;
}

/* --- mallctl --- */

static const char* Name(unsigned arena, const char* rest) {
  static char name[64];
  snprintf(name, sizeof(name), "%s.%u.%s", strchr(rest, '.') != NULL ? "stats.arenas" : "arena", arena, rest);
  return name;
}

static int Do(const char* name) { return mallctl_(name, NULL, NULL, NULL, 0); }

/* SIZE_MAX - error: there is no such value. */
static size_t Size(const char* name) {
  size_t value = 0;
  size_t length = sizeof(value);
  const int error = mallctl_(name, &value, &length, NULL, 0);
  return error == 0 ? value : SIZE_MAX - (size_t)error;
}

/* --- the model --- */

enum { kArenas = 16, kBlocks = 512, kBins = 8 };

struct Held {
  unsigned char* pointer;
  size_t usable;
  unsigned arena;
};
static struct Held blocks[kBlocks];
/* By index; arena 0 always exists. */
static int exists[kArenas] = {1};
static unsigned bound;
static unsigned narenas = 1;

static size_t RandomSize(void) {
  switch (Draw(8)) {
    case 0:
      return 1 + Draw(64 * 1024);
    case 1:
      return 1 + Draw(3 * 1024 * 1024);
    case 2:
      return Draw(16) == 0 ? 20 * 1024 * 1024 + Draw(1024 * 1024) : 32;
    default:
      return 1 + Draw(4096);
  }
}

static unsigned RandomArena(void) { return (unsigned)Draw(narenas < kArenas ? narenas + 1 : kArenas); }

static void Check(const struct Held* held) {
  CHECK(held->pointer[0] == (unsigned char)held->usable);
  CHECK(held->pointer[held->usable - 1] == (unsigned char)held->usable);
}

static void Keep(struct Held* held, void* pointer) {
  held->pointer = pointer;
  held->usable = sallocx_(pointer, 0);
  held->pointer[0] = held->pointer[held->usable - 1] = (unsigned char)held->usable;
  unsigned arena = 99;
  size_t length = sizeof(arena);
  CHECK(mallctl_("arenas.lookup", &arena, &length, &pointer, sizeof(pointer)) == 0);
  held->arena = arena;
}

/* Of blocks of the arena that are gone. */
static void Forget(unsigned arena) {
  for (int i = 0; i < kBlocks; i++) {
    if (blocks[i].pointer != NULL && blocks[i].arena == arena) blocks[i].pointer = NULL;
  }
}

/* --- steps --- */

static void Create(void) {
  if (narenas == kArenas) return;
  unsigned arena = 99;
  size_t length = sizeof(arena);
  const int error = mallctl_("arenas.create", &arena, &length, NULL, 0);
  printf("create %d %u\n", error, arena);
  if (error != 0 || arena >= kArenas) return;
  exists[arena] = 1;
  if (arena >= narenas) narenas = arena + 1;
}

static void Allocate(struct Held* held) {
  const unsigned arena = RandomArena();
  const size_t size = RandomSize();
  const int alignment = Draw(8) == 0 ? MALLOCX_LG_ALIGN(Draw(14)) : 0;
  if (held->pointer != NULL || (arena != 0 && !exists[arena])) return;
  const int place = Draw(4) == 0 ? 0 : MALLOCX_ARENA(arena);
  void* pointer = mallocx_(size, place | alignment | MALLOCX_TCACHE_NONE);
  CHECK(pointer != NULL);
  Keep(held, pointer);
  printf("mallocx %zu: %zu in %u\n", size, held->usable, held->arena);
  CHECK(held->arena == (place != 0 ? arena : bound));
}

static void Free(struct Held* held) {
  if (held->pointer == NULL) return;
  Check(held);
  dallocx_(held->pointer, MALLOCX_TCACHE_NONE);
  held->pointer = NULL;
}

/* Within the arena of the block: whether a block moves differs. */
static void Resize(struct Held* held) {
  const size_t size = RandomSize();
  if (held->pointer == NULL) return;
  Check(held);
  void* pointer = rallocx_(held->pointer, size, MALLOCX_ARENA(held->arena) | MALLOCX_TCACHE_NONE);
  CHECK(pointer != NULL && *(unsigned char*)pointer == (unsigned char)held->usable);
  Keep(held, pointer);
  printf("rallocx %zu: %zu in %u\n", size, held->usable, held->arena);
}

static void Discard(int destroys) {
  const unsigned arena = RandomArena();
  const int error = Do(Name(arena, destroys ? "destroy" : "reset"));
  printf("%s %u: %d\n", destroys ? "destroy" : "reset", arena, error);
  if (error != 0) return;
  Forget(arena);
  if (destroys) exists[arena] = 0;
}

static void Bind(void) {
  unsigned arena = RandomArena();
  unsigned old = 99;
  size_t length = sizeof(old);
  /* jemalloc makes a destroyed arena anew. */
  if (arena < narenas && !exists[arena]) return;
  const int error = mallctl_("thread.arena", &old, &length, &arena, sizeof(arena));
  printf("thread.arena %u: %d, was %u\n", arena, error, old);
  if (error == 0) bound = arena;
}

/* What is allocated in each arena, and in a few classes that both allocators have. */
static void Figures(void) {
  uint64_t epoch = 1;
  Do("thread.tcache.flush");
  CHECK(mallctl_("epoch", NULL, NULL, &epoch, sizeof(epoch)) == 0);
  unsigned count = 0;
  size_t length = sizeof(count);
  mallctl_("arenas.narenas", &count, &length, NULL, 0);
  printf("narenas %u\n", count);
  for (unsigned arena = 1; arena < count; arena++) {
    int is_initialized = 0;
    length = 1;
    mallctl_(Name(arena, "initialized"), &is_initialized, &length, NULL, 0);
    printf("arena %u: %d", arena, is_initialized);
    size_t held = 0;
    for (int i = 0; i < kBlocks; i++)
      held += blocks[i].pointer != NULL && blocks[i].arena == arena ? blocks[i].usable : 0;
    const size_t small = Size(Name(arena, "small.allocated"));
    if (is_initialized != 0) {
      printf(" allocated %zu", small + Size(Name(arena, "large.allocated")));
      CHECK(small + Size(Name(arena, "large.allocated")) == held);
      for (unsigned bin = 0; bin < kBins; bin++) {
        char rest[32];
        snprintf(rest, sizeof(rest), "bins.%u.curregs", bin);
        printf(" %zu", Size(Name(arena, rest)));
      }
    } else {
      printf(" error %zu", SIZE_MAX - small);
    }
    printf("\n");
  }
}

int main(int argc, char** argv) {
  *(void**)&mallctl_ = Find("mallctl");
  *(void**)&mallocx_ = Find("mallocx");
  *(void**)&rallocx_ = Find("rallocx");
  *(void**)&sallocx_ = Find("sallocx");
  *(void**)&dallocx_ = Find("dallocx");
  state = argc > 1 ? strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u + 1 : 1;
  const int steps = argc > 2 ? atoi(argv[2]) : 3000;
  for (int i = 0; i < steps; i++) {
    struct Held* held = &blocks[Draw(kBlocks)];
    const uint64_t step = Draw(100);
    if (step < 45) {
      Allocate(held);
    } else if (step < 65) {
      Free(held);
    } else if (step < 80) {
      Resize(held);
    } else if (step < 85) {
      Create();
    } else if (step < 88) {
      Bind();
    } else if (step < 92) {
      Discard(Draw(2) == 0);
    } else {
      Figures();
    }
  }
  return failures != 0;
}
