/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that a test drives: one command a line on stdin, one answer a line on stdout. First it says
 * "ready PID". It ends with status 0 at the end of its input.
 *
 *   keep N SIZE      allocates N blocks of SIZE bytes in keep_blocks() and keeps them   -> "kept N"
 *   churn N SIZE     allocates and frees N blocks in churn_blocks()                     -> "churned N"
 *   drop             frees all kept blocks                                              -> "dropped N"
 *   dump [NAME]      mallctl("prof.dump")                                               -> "mallctl ERROR"
 *   active 0|1       writes mallctl("prof.active")                                      -> "mallctl ERROR"
 *   is NAME          reads a boolean by mallctl                                         -> "mallctl ERROR VALUE"
 *   uid N            drops to user and group N                                          -> "uid N"
 *   chdir FOLDER                                                                        -> "chdir ERROR"
 *   exit N | _exit N | abort | segv | raise SIGNAL | exec PROGRAM                          ends
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Absent unless the allocator has it. */
extern int mallctl(const char* name, void* old, size_t* old_length, void* new, size_t new_length) __attribute__((weak));

#define NOINLINE __attribute__((noinline, noclone))

enum { KEPT_MAX = 1 << 22 };
static void* kept[KEPT_MAX];
static size_t kept_count;

NOINLINE void keep_blocks(size_t count, size_t size) {
  for (size_t i = 0; i < count && kept_count < KEPT_MAX; i++) {
    kept[kept_count++] = malloc(size);
  }
}

NOINLINE void churn_blocks(size_t count, size_t size) {
  for (size_t i = 0; i < count; i++) {
    void* volatile block = malloc(size);
    free(block);
  }
}

NOINLINE size_t drop_blocks(void) {
  size_t count = kept_count;
  while (kept_count > 0) {
    free(kept[--kept_count]);
  }
  return count;
}

static int write_control(const char* name, void* value, size_t length) {
  return mallctl == NULL ? ENOSYS : mallctl(name, NULL, NULL, value, length);
}

static void leave(const char* how, int number, const char* program) {
  if (strcmp(how, "exit") == 0) {
    exit(number);
  } else if (strcmp(how, "_exit") == 0) {
    _exit(number);
  } else if (strcmp(how, "abort") == 0) {
    abort();
  } else if (strcmp(how, "segv") == 0) {
    *(volatile int*)8 = 1;
  } else if (strcmp(how, "raise") == 0) {
    raise(number);
  } else if (strcmp(how, "exec") == 0) {
    execl(program, program, (char*)NULL);
    perror(program);
  }
}

static void obey(char* line) {
  char* word = strtok(line, " \n");
  char* first = strtok(NULL, " \n");
  char* second = strtok(NULL, " \n");
  size_t number = first != NULL ? strtoul(first, NULL, 0) : 0;
  size_t size = second != NULL ? strtoul(second, NULL, 0) : 0;
  if (word == NULL) {
    return;
  } else if (strcmp(word, "keep") == 0) {
    keep_blocks(number, size);
    printf("kept %zu\n", number);
  } else if (strcmp(word, "churn") == 0) {
    churn_blocks(number, size);
    printf("churned %zu\n", number);
  } else if (strcmp(word, "drop") == 0) {
    printf("dropped %zu\n", drop_blocks());
  } else if (strcmp(word, "dump") == 0) {
    const char* name = first;
    printf("mallctl %d\n", write_control("prof.dump", name != NULL ? &name : NULL, name != NULL ? sizeof name : 0));
  } else if (strcmp(word, "active") == 0) {
    bool active = number != 0;
    printf("mallctl %d\n", write_control("prof.active", &active, sizeof active));
  } else if (strcmp(word, "is") == 0) {
    bool value = false;
    size_t length = sizeof value;
    int error = mallctl == NULL ? ENOSYS : mallctl(first, &value, &length, NULL, 0);
    printf("mallctl %d %d\n", error, value);
  } else if (strcmp(word, "uid") == 0) {
    int error = setgroups(0, NULL) | setgid((gid_t)number) | setuid((uid_t)number);
    printf("uid %d\n", error == 0 ? (int)getuid() : -1);
  } else if (strcmp(word, "chdir") == 0) {
    printf("chdir %d\n", chdir(first) == 0 ? 0 : errno);
  } else {
    leave(word, (int)number, first);
  }
}

int main(void) {
  /* stdio's own buffers stay out of the heap: what a test sees there is what it asked for. */
  static char input[BUFSIZ], output[BUFSIZ];
  static char line[4096];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  while (fgets(line, sizeof line, stdin) != NULL) {
    obey(line);
  }
  return 0;
}
