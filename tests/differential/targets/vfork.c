/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vfork: the child allocates in its parent's memory, on its parent's stack, then becomes `vfork child`; the parent
 * allocates before and after.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keep.h"

static NOINLINE void allocate(int count, size_t size) {
  for (int i = 0; i < count; i++) {
    keep(size + (size_t)i);
  }
}

static NOINLINE int below(int level, char** arguments) {
  if (level > 0) {
    int status = below(level - 1, arguments);
    keep(700);
    return status;
  }
  pid_t child = vfork();
  if (child == 0) {
    allocate(30, 1000);
    execv("/proc/self/exe", arguments);
    _exit(1);
  }
  allocate(20, 2000);
  int status = 1;
  waitpid(child, &status, 0);
  return status;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "child") == 0) {
    allocate(100, 3000);
    return 0;
  }
  char* arguments[] = {argv[0], "child", NULL};
  int failures = 0;
  for (int round = 0; round < 5; round++) {
    allocate(50, 100);
    failures += below(round, arguments) != 0;
    allocate(50, 500);
  }
  return failures;
}
