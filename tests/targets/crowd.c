/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many processes that fire the probes of an allocator. One command per line on stdin, one answer per line on stdout;
 * first it prints "ready PID". All its processes are in its process group.
 *
 *   sample N         fires otel_memory:alloc N times                                            -> "sampled N"
 *   sleep N          forks N children that fire heaptap:start with a valid control block and
 *                    otel_memory:alloc once, and sleep                                           -> "forked N"
 *   lend N FOLDER    the same, but the control block of each lies in a file of its own, FOLDER/0
 *                    and so on. The child drops the page from memory again and again, so that
 *                    whoever reads the block waits for the file system.                          -> "forked N"
 *   storm N          N children fork without end; each grandchild fires otel_memory:alloc once
 *                    and ends                                                                    -> "forked N"
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile_probes.h"

enum { DROP_MICROSECONDS = 1000 };

/* What a child does, which has a number of its own. It writes one byte to `ready` when it has fired. */
typedef void (*role)(int number, int ready);

static const char* folder;

static void say_ready(int ready) {
  if (write(ready, "", 1) != 1) die("pipe");
}

static void* begin(void) {
  void* control = page();
  make_valid(control);
  fire_start((uintptr_t)control);
  fire_alloc(new_block(), BLOCK, BLOCK);
  return control;
}

static void be_idle(int number, int ready) {
  (void)number;
  begin();
  say_ready(ready);
  for (;;) pause();
}

static void lend(int number, int ready) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", folder, number);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void* control = begin();
  if (fd < 0 || write(fd, control, PAGE) != PAGE) die(path);
  if (mmap(control, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != control) die(path);
  say_ready(ready);
  for (;;) {
    madvise(control, PAGE, MADV_DONTNEED);
    posix_fadvise(fd, 0, PAGE, POSIX_FADV_DONTNEED);
    usleep(DROP_MICROSECONDS);
  }
}

static void storm(int number, int ready) {
  (void)number;
  say_ready(ready);
  for (;;) {
    pid_t child = fork();
    if (child == 0) {
      fire_alloc(new_block(), BLOCK, BLOCK);
      _exit(0);
    }
    if (child > 0) waitpid(child, NULL, 0);
  }
}

static void fork_all(role role, int count) {
  int ready[2];
  if (pipe(ready) != 0) die("pipe");
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) role(i, ready[1]);
    char byte;
    if (read(ready[0], &byte, 1) != 1) die("pipe");
  }
  close(ready[0]);
  close(ready[1]);
  printf("forked %d\n", count);
}

int main(void) {
  char line[4096], word[4000];
  int count;
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("ready %d\n", (int)getpid());
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (sscanf(line, "sample %d", &count) == 1) {
      for (int i = 0; i < count; i++) fire_alloc(new_block(), BLOCK, BLOCK);
      printf("sampled %d\n", count);
    } else if (sscanf(line, "sleep %d", &count) == 1) {
      fork_all(be_idle, count);
    } else if (sscanf(line, "lend %d %3999s", &count, word) == 2) {
      folder = word;
      fork_all(lend, count);
    } else if (sscanf(line, "storm %d", &count) == 1) {
      fork_all(storm, count);
    } else {
      return 1;
    }
  }
  return 0;
}
