/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that acts in its constructor, before a program has allocated anything. $EARLY says what it does:
 *
 *   fork   registers handlers of fork that take the library's lock and allocate, as many libraries do
 *   keys   takes all keys of thread-specific data
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void* volatile block;

/* All kinds of blocks: a thread's own, those that lead to a new slab, and large ones. */
static void Allocate(void) {
  for (size_t size = 16; size <= 1 << 20; size *= 2) {
    block = malloc(size);
    memset(block, 1, 16);
    free(block);
  }
}

static void BeforeFork(void) {
  pthread_mutex_lock(&lock);
  Allocate();
}

static void AfterFork(void) {
  Allocate();
  pthread_mutex_unlock(&lock);
}

/* What the library does for the program: allocates under its lock. */
void Use(void) {
  pthread_mutex_lock(&lock);
  Allocate();
  pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void Start(void) {
  const char* way = getenv("EARLY");
  if (way != NULL && strcmp(way, "fork") == 0) pthread_atfork(BeforeFork, AfterFork, AfterFork);
  pthread_key_t key;
  while (way != NULL && strcmp(way, "keys") == 0 && pthread_key_create(&key, NULL) == 0) {
  }
}
