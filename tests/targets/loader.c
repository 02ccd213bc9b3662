/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens plugins (plugin.c) late, compiled without frame pointers. Prints "ready PID"; then for each line:
 *
 *   open PATH             dlopen                                              -> "opened MICROSECONDS", "failed WHY"
 *   call FUNCTION N       FUNCTION(malloc, N) of the last one opened, from call_plugin()  -> "called", "failed WHY"
 *   close                 dlclose                                             -> "closed ERROR"
 *   swap A B ROUNDS       opens, calls and closes two plugins, left and right, in turn, while four threads allocate in
 *                         stable_allocate(); N: how often a plugin had its predecessor's address  -> "swapped N"
 *   remap A B OFFSET ROUNDS  the same without the loader: the files are mapped in turn at one address, and the
 *                         function at that file offset is called               -> "remapped"
 *   churn A ROUNDS        maps and unmaps the file while four threads allocate  -> "churned"
 *   maps A OFFSET N       maps the file N times, and calls the function in each -> "mapped N"
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { THREADS = 4 };

typedef void (*function)(void* (*)(size_t), long);

static void* opened;
static atomic_int stop;
static _Thread_local void* volatile kept;

static long long microseconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

NOINLINE const char* call_plugin(const char* name, long count) {
  function enter = (function)dlsym(opened, name);
  if (enter == NULL) return dlerror();
  enter(malloc, count);
  return NULL;
}

NOINLINE void stable_allocate(void) {
  kept = malloc(64);
  free(kept);
}

NOINLINE void* stable_body(void* argument) {
  while (!atomic_load(&stop)) stable_allocate();
  return argument;
}

static void start(pthread_t* threads) {
  atomic_store(&stop, 0);
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, stable_body, NULL) != 0) abort();
  }
}

static void finish(pthread_t* threads) {
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static long swap(const char* left, const char* right, long rounds) {
  pthread_t threads[THREADS];
  uintptr_t last = 0;
  long same = 0;
  start(threads);
  for (long i = 0; i < rounds; i++) {
    struct link_map* map = opened = dlopen(i % 2 ? right : left, RTLD_NOW);
    if (opened == NULL) return -1;
    same += map->l_addr == last;
    last = map->l_addr;
    call_plugin(i % 2 ? "right_enter" : "left_enter", 3);
    dlclose(opened);
  }
  finish(threads);
  return same;
}

struct file {
  int descriptor;
  size_t size;
};

static struct file open_file(const char* path) {
  struct stat status;
  struct file file = {.descriptor = open(path, O_RDONLY | O_CLOEXEC)};
  if (file.descriptor < 0 || fstat(file.descriptor, &status) != 0) abort();
  file.size = ((size_t)status.st_size + 4095) & ~(size_t)4095;
  return file;
}

static char* map(const struct file* file, void* address) {
  void* result =
      mmap(address, file->size, PROT_READ | PROT_EXEC, MAP_PRIVATE | (address ? MAP_FIXED : 0), file->descriptor, 0);
  if (result == MAP_FAILED) abort();
  return result;
}

NOINLINE void call_mapped(const char* code) { ((function)(uintptr_t)code)(malloc, 1); }

static void remap(const char* left, const char* right, size_t offset, long rounds) {
  struct file files[2] = {open_file(left), open_file(right)};
  char* address = map(&files[0], NULL);
  for (long i = 0; i < rounds; i++) {
    map(&files[i % 2], address);
    call_mapped(address + offset);
  }
}

static void churn(const char* path, long rounds) {
  pthread_t threads[THREADS];
  struct file file = open_file(path);
  start(threads);
  for (long i = 0; i < rounds; i++) munmap(map(&file, NULL), file.size);
  finish(threads);
}

static long map_often(const char* path, size_t offset, long count) {
  struct file file = open_file(path);
  long done = 0;
  while (done < count) {
    call_mapped(map(&file, NULL) + offset);
    done++;
  }
  return done;
}

static void obey(char* line) {
  char* word = strtok(line, " \n");
  char* first = strtok(NULL, " \n");
  char* second = strtok(NULL, " \n");
  char* third = strtok(NULL, " \n");
  char* fourth = strtok(NULL, " \n");
  if (strcmp(word, "open") == 0) {
    long long begin = microseconds();
    opened = dlopen(first, RTLD_NOW);
    if (opened != NULL) {
      printf("opened %lld\n", microseconds() - begin);
    } else {
      printf("failed %s\n", dlerror());
    }
  } else if (strcmp(word, "call") == 0) {
    const char* error = call_plugin(first, atol(second));
    printf("%s\n", error == NULL ? "called" : error);
  } else if (strcmp(word, "close") == 0) {
    printf("closed %d\n", dlclose(opened));
  } else if (strcmp(word, "swap") == 0) {
    printf("swapped %ld\n", swap(first, second, atol(third)));
  } else if (strcmp(word, "remap") == 0) {
    remap(first, second, strtoul(third, NULL, 0), atol(fourth));
    printf("remapped\n");
  } else if (strcmp(word, "churn") == 0) {
    churn(first, atol(second));
    printf("churned\n");
  } else if (strcmp(word, "maps") == 0) {
    printf("mapped %ld\n", map_often(first, strtoul(second, NULL, 0), atol(third)));
  } else {
    printf("failed %s\n", word);
  }
}

int main(void) {
  static char input[BUFSIZ], output[BUFSIZ];
  static char line[4096];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  while (fgets(line, sizeof line, stdin) != NULL) obey(line);
  return 0;
}
