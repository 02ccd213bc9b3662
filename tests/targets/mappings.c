/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps new files as code, in processes of one process group, and prints "ready PID" when each has begun.
 *
 *   mappings churn PROCESSES        each maps new files without end and keeps the last few
 *   mappings keep PROCESSES FILES   each maps so many files, keeps them and sleeps
 *
 * The files are in memory and have no name. Their descriptors are closed again.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, KEPT = 4 };

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void* map_new_file(void) {
  int fd = memfd_create("code", 0);
  if (fd < 0 || ftruncate(fd, PAGE) != 0) die("memfd_create");
  void* code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  if (code == MAP_FAILED) die("mmap");
  close(fd);
  return code;
}

static void churn(void) {
  void* kept[KEPT] = {NULL};
  for (unsigned i = 0;; i++) {
    void** place = &kept[i % KEPT];
    if (*place != NULL) munmap(*place, PAGE);
    *place = map_new_file();
  }
}

int main(int argc, char** argv) {
  if (argc < 3 || (strcmp(argv[1], "keep") == 0) != (argc == 4)) return 2;
  const int processes = atoi(argv[2]);
  const int files = argc == 4 ? atoi(argv[3]) : 0;
  int ready[2];
  if (pipe(ready) != 0) die("pipe");
  for (int i = 0; i < processes; i++) {
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child > 0) continue;
    for (int file = 0; file < files; file++) map_new_file();
    if (write(ready[1], "", 1) != 1) die("pipe");
    if (files == 0) churn();
    for (;;) pause();
  }
  char byte;
  for (int i = 0; i < processes; i++) {
    if (read(ready[0], &byte, 1) != 1) die("pipe");
  }
  printf("ready %d\n", (int)getpid());
  fflush(stdout);
  for (;;) pause();
}
