/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool allocator in C: blocks of one size, cut from slabs of malloc, kept in a list when they are free. Two calls of
 * <heaptap/sample.h> show each pool by its name in heaptap's profiles.
 *
 *   pool KEPT GIVEN_BACK [THREADS]: so many blocks are kept in pool_keep and taken and given back in pool_churn, by
 * each thread
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "heaptap/sample.h"

#define NOINLINE __attribute__((noinline, noclone))

enum { SLAB_BLOCKS = 64 };

struct block {
  struct block* next;
};

struct pool {
  const char* name;
  size_t size;
  struct block* free_blocks;
  pthread_mutex_t mutex;
};

NOINLINE static void add_slab(struct pool* pool) {
  char* slab = malloc(SLAB_BLOCKS * pool->size);
  if (slab == NULL) abort();
  for (int i = 0; i < SLAB_BLOCKS; i++) {
    struct block* block = (struct block*)(slab + i * pool->size);
    block->next = pool->free_blocks;
    pool->free_blocks = block;
  }
}

void* pool_take(struct pool* pool) {
  pthread_mutex_lock(&pool->mutex);
  if (pool->free_blocks == NULL) add_slab(pool);
  struct block* block = pool->free_blocks;
  pool->free_blocks = block->next;
  pthread_mutex_unlock(&pool->mutex);
  heaptap_heap_sample_alloc(pool->name, block, pool->size);
  return block;
}

void pool_give(struct pool* pool, void* memory) {
  struct block* block = memory;
  heaptap_heap_sample_free(pool->name, block);
  pthread_mutex_lock(&pool->mutex);
  block->next = pool->free_blocks;
  pool->free_blocks = block;
  pthread_mutex_unlock(&pool->mutex);
}

static struct pool requests = {.name = "requests", .size = 64, .mutex = PTHREAD_MUTEX_INITIALIZER};
static struct pool answers = {
    .name = "answers, which are rather long, and longer", .size = 200, .mutex = PTHREAD_MUTEX_INITIALIZER};
static long kept, given_back;

NOINLINE static void pool_keep(struct pool* pool) {
  for (long i = 0; i < kept; i++) pool_take(pool);
}

NOINLINE static void pool_churn(struct pool* pool) {
  for (long i = 0; i < given_back; i++) pool_give(pool, pool_take(pool));
}

static void* work(void* unused) {
  pool_keep(&requests);
  pool_churn(&requests);
  pool_keep(&answers);
  return unused;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  kept = atol(arguments[1]);
  given_back = atol(arguments[2]);
  pthread_t threads[16];
  const int number = count > 3 ? atoi(arguments[3]) : 0;
  if (number == 0) work(NULL);
  for (int i = 0; i < number && i < 16; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < number && i < 16; i++) pthread_join(threads[i], NULL);
  printf("done\n");
  return 0;
}
