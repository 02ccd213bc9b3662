/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that come with a plugin: late_threads PLUGIN COUNT. The program is not linked with libpthread, which before
 * glibc 2.34 comes with the plugin. The plugin runs COUNT threads one after the other. Each allocates blocks of many
 * sizes, and frees them.
 *
 * Prints "grew KIBIBYTES": how much of the process has become resident since the first threads.
 *
 * With -DPLUGIN it is the plugin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLUGIN
#include <pthread.h>

enum { BLOCKS = 40 };

static void* use_blocks(void* unused) {
  char* volatile blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = malloc(16 + i * i * 4);
    memset(blocks[i], 1, 16 + i * i * 4);
  }
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  return unused;
}

int run_threads(int count) {
  for (int i = 0; i < count; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, use_blocks, NULL) != 0) return 1;
    if (pthread_join(thread, NULL) != 0) return 1;
  }
  return 0;
}
#else
#include <dlfcn.h>

enum { FIRST = 32 };

/* In KiB. */
static long resident(void) {
  FILE* file = fopen("/proc/self/statm", "r");
  long total, pages;
  if (file == NULL || fscanf(file, "%ld %ld", &total, &pages) != 2) exit(2);
  fclose(file);
  return pages * 4;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int (*run_threads)(int) = (int (*)(int))dlsym(plugin, "run_threads");
  if (run_threads == NULL || run_threads(FIRST) != 0) return 1;
  long before = resident();
  if (run_threads(atoi(argv[2])) != 0) return 1;
  printf("grew %ld\n", resident() - before);
  return 0;
}
#endif
