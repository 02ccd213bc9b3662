/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two plugins, loaded, called and unloaded in turn, always at the same address, while three other threads allocate. One
 * stays loaded at the end, so that a later look at the mappings finds one where both were.
 *
 *   plugins FIRST SECOND
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>

#include "keep.h"

enum { THREADS = 3, ROUNDS = 100, THREAD_ROUNDS = 20000 };

static NOINLINE void thread_allocates(int level, size_t size) {
  if (level > 0) {
    thread_allocates(level - 1, size);
  } else {
    void* volatile block = malloc(size);
    free(block);
  }
  NOT_A_TAIL_CALL;
}

static void* thread(void* argument) {
  for (size_t round = 0; round < THREAD_ROUNDS; round++) {
    thread_allocates((int)(round % 8), 50 + (size_t)argument * 200 + round % 100);
  }
  return NULL;
}

static ElfW(Addr) where;

static NOINLINE size_t use(const char* path, int unload) {
  void* plugin = dlopen(path, RTLD_NOW);
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  struct link_map* map;
  dlinfo(plugin, RTLD_DI_LINKMAP, &map);
  ElfW(Addr) here = (ElfW(Addr))map->l_ld & ~(ElfW(Addr))0xffff;
  if (where != 0 && here != where) {
    fprintf(stderr, "plugins: %s is elsewhere: %#lx instead of %#lx\n", path, here, where);
    exit(1);
  }
  where = here;
  size_t (*allocate)(size_t) = (size_t(*)(size_t))dlsym(plugin, "plugin_allocate");
  size_t sum = 0;
  for (size_t size = 100; size < 120; size++) {
    sum += allocate(size);
  }
  if (unload) {
    dlclose(plugin);
  }
  return sum;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    pthread_create(&threads[i], NULL, thread, (void*)i);
  }
  size_t sum = 0;
  for (int round = 0; round < ROUNDS; round++) {
    sum += use(argv[1], 1);
    sum += use(argv[2], 1);
  }
  for (size_t i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  use(argv[1], 0);
  return sum == 0;
}
