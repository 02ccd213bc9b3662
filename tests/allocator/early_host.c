/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with a library that acts before the first allocation (early_library.c).
 *
 *   early_host fork      forks while threads use the library, and says "ok"
 *   early_host threads   makes threads that allocate, one after the other, and says whether their memory is used again
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern void Use(void);

enum { kForks = 200, kUsers = 3, kThreads = 1000 };

static atomic_bool ends;

static void* UseUntilTheEnd(void* unused) {
  while (!atomic_load(&ends)) Use();
  return unused;
}

static int Fork(void) {
  pthread_t users[kUsers];
  for (int i = 0; i < kUsers; i++) {
    if (pthread_create(&users[i], NULL, UseUntilTheEnd, NULL) != 0) return 2;
  }
  for (int i = 0; i < kForks; i++) {
    const pid_t child = fork();
    if (child == 0) {
      Use();
      _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 3;
  }
  atomic_store(&ends, 1);
  for (int i = 0; i < kUsers; i++) pthread_join(users[i], NULL);
  puts("ok");
  return 0;
}

/* Blocks of many classes, so that each thread needs some slabs. */
static void* Allocate(void* unused) {
  for (int i = 0; i < 100; i++) {
    void* volatile block = malloc((size_t)(16 + 300 * i));
    memset(block, 1, 16);
    free(block);
  }
  return unused;
}

static long ResidentMiB(void) {
  long pages = 0;
  long resident = 0;
  FILE* file = fopen("/proc/self/statm", "re");
  if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2) return -1;
  fclose(file);
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

static int RunThreads(void) {
  for (int i = 0; i < kThreads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, Allocate, NULL) != 0 || pthread_join(thread, NULL) != 0) return 2;
  }
  /* A heap of one thread has less than 2 MiB, and that of a thousand some hundreds. */
  puts(ResidentMiB() < 60 ? "used again" : "kept");
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "fork") == 0) return Fork();
  if (argc == 2 && strcmp(argv[1], "threads") == 0) return RunThreads();
  return 2;
}
