/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways to create a process. The parent leaks 1000 blocks of 64 bytes in parent_leak() before and 10 after; the child
 * leaks 500 blocks of 128 bytes in child_leak().
 *
 *   children fork      the child is a copy; the parent waits
 *   children exec      fork, then exec of `children leak`
 *   children vfork     vfork, then exec of `children leak`
 *   children spawn     posix_spawn of `children leak`
 *   children daemon    like daemon(3): the child lives in its own session; the parent ends when the child has leaked
 *   children threads   forks while four threads allocate; the child leaks and exits
 *   children leak      only child_leak()
 *
 * Status: the child's, 7; the daemon's parent: 0.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
extern char** environ;

static void* volatile sink;

NOINLINE void parent_leak(int count) {
  for (int i = 0; i < count; i++) {
    sink = malloc(64);
  }
}

NOINLINE void child_leak(void) {
  for (int i = 0; i < 500; i++) {
    sink = malloc(128);
  }
}

static atomic_bool stop;

static void* allocate_until_stopped(void* unused) {
  while (!atomic_load(&stop)) {
    void* volatile block = malloc(256);
    free(block);
  }
  return unused;
}

static int status_of(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) {
    return 99;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int become_daemon(void) {
  int leaked[2];
  if (pipe(leaked) != 0) return 95;
  pid_t child = fork();
  if (child == 0) {
    setsid();
    child_leak();
    return write(leaked[1], "x", 1) == 1 ? 7 : 94;
  }
  char word;
  _exit(child > 0 && read(leaked[0], &word, 1) == 1 ? 0 : 95);
}

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "";
  char* leak[] = {argv[0], (char*)"leak", NULL};
  if (strcmp(way, "leak") == 0) {
    child_leak();
    return 7;
  }
  parent_leak(1000);
  pid_t child = -1;
  pthread_t threads[4];
  if (strcmp(way, "threads") == 0) {
    for (int i = 0; i < 4; i++) {
      pthread_create(&threads[i], NULL, allocate_until_stopped, NULL);
    }
  }
  if (strcmp(way, "fork") == 0 || strcmp(way, "exec") == 0 || strcmp(way, "threads") == 0) {
    child = fork();
    if (child == 0) {
      if (strcmp(way, "exec") == 0) {
        execv(argv[0], leak);
        _exit(97);
      }
      child_leak();
      exit(7);
    }
  } else if (strcmp(way, "vfork") == 0) {
    child = vfork();
    if (child == 0) {
      execv(argv[0], leak);
      _exit(97);
    }
  } else if (strcmp(way, "spawn") == 0) {
    if (posix_spawn(&child, argv[0], NULL, NULL, leak, environ) != 0) {
      return 96;
    }
  } else if (strcmp(way, "daemon") == 0) {
    return become_daemon();
  } else {
    return 2;
  }
  parent_leak(10);
  int status = status_of(child);
  if (strcmp(way, "threads") == 0) {
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++) {
      pthread_join(threads[i], NULL);
    }
  }
  return status;
}
