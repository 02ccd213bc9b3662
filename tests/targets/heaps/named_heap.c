/* SPDX-License-Identifier: Apache-2.0 */
/*
 * named_heap NAME [wait | fork | ask]: ten blocks of 100 bytes in a heap of this name, which do not exist. Then prints
 * "ready PID". wait: then waits for the end of its input. fork: a forked child allocates one block more. ask: for each
 * line of its input, ten blocks more, and "done".
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heaptap/sample.h"

int main(int count, char** arguments) {
  if (count < 2) return 2;
  static char blocks[2000];
  for (int i = 0; i < 10; i++) heaptap_heap_sample_alloc(arguments[1], blocks + 100 * i, 100);
  if (count > 2 && strcmp(arguments[2], "fork") == 0) {
    if (fork() == 0) {
      heaptap_heap_sample_free(arguments[1], blocks); /* of the parent: unknown in the child's books */
      heaptap_heap_sample_alloc(arguments[1], blocks + 1000, 100);
      _exit(0);
    }
    wait(NULL);
  }
  printf("ready %d\n", (int)getpid());
  fflush(stdout);
  if (count > 2 && strcmp(arguments[2], "wait") == 0) (void)getchar();
  if (count > 2 && strcmp(arguments[2], "ask") == 0) {
    char line[10];
    while (fgets(line, sizeof line, stdin) != NULL) {
      for (int i = 0; i < 10; i++) heaptap_heap_sample_alloc(arguments[1], blocks + 100 * i, 100);
      printf("done\n");
      fflush(stdout);
    }
  }
  return 0;
}
