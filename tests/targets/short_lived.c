/* SPDX-License-Identifier: Apache-2.0 */
/*
 * short_lived PER_SECOND COUNT LIBRARY: starts COUNT processes at a steady rate, each with LIBRARY preloaded and
 * sampling at 2^0, and kills every second one with SIGKILL when it reports the end of its work. Process I allocates
 * I % 40 + 20 blocks of 64 bytes in live_fast() and frees I % 7 of them. A line for each as it ends:
 *
 *   PID STATUS ALLOCATED LIVE
 *
 * in blocks, STATUS as wait(2) has it; and a last one: "seconds SECONDS". Needs no library itself.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { SIZE = 64, DONE = 3, COUNT_MAX = 1 << 20 };

static pid_t children[COUNT_MAX];
static unsigned begun;

static unsigned allocated_by(unsigned number) { return number % 40 + 20; }
static unsigned freed_by(unsigned number) { return number % 7; }
static int is_killed(unsigned number) { return number % 2; }

NOINLINE void live_fast(unsigned number) {
  static void* volatile blocks[64];
  for (unsigned i = 0; i < allocated_by(number); i++) {
    blocks[i] = malloc(SIZE);
  }
  for (unsigned i = 0; i < freed_by(number); i++) {
    free(blocks[i]);
  }
}

static int child(unsigned number) {
  live_fast(number);
  pid_t self = getpid();
  if (!is_killed(number)) {
    return 0;
  }
  if (write(DONE, &self, sizeof self) != sizeof self) {
    return 1;
  }
  for (;;) {
    pause();
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void start(char* program, char** environment) {
  char number[16];
  snprintf(number, sizeof number, "%u", begun);
  char* arguments[] = {program, number, NULL};
  if (posix_spawn(&children[begun++], program, NULL, NULL, arguments, environment) != 0) {
    perror(program);
    exit(1);
  }
}

static unsigned reap(void) {
  unsigned ended = 0;
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0; ended++) {
    unsigned i = begun;
    while (children[--i] != pid) {
    }
    printf("%d %d %u %u\n", (int)pid, status, allocated_by(i), allocated_by(i) - freed_by(i));
  }
  return ended;
}

static void kill_those_that_say_so(int pipe) {
  pid_t pid;
  while (read(pipe, &pid, sizeof pid) == sizeof pid) {
    kill(pid, SIGKILL);
  }
}

int main(int argc, char** argv) {
  if (argc == 2) {
    return child((unsigned)strtoul(argv[1], NULL, 0));
  }
  int ends[2];
  if (argc != 4 || strtoul(argv[2], NULL, 0) > COUNT_MAX || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return 2;
  }
  int input = fcntl(ends[0], F_DUPFD_CLOEXEC, DONE + 1);
  int output = fcntl(ends[1], F_DUPFD_CLOEXEC, DONE + 1);
  dup2(output, DONE); /* the children's end */
  double pause = 1.0 / (double)strtoul(argv[1], NULL, 0);
  unsigned count = (unsigned)strtoul(argv[2], NULL, 0);
  char preload[4096];
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[3]);
  char conf[] = "MALLOC_CONF=lg_prof_sample:0";
  char* environment[] = {preload, conf, NULL};
  double begin = now();
  double due = begin;
  for (unsigned ended = 0; ended < count; ended += reap()) {
    if (begun < count && now() >= due) {
      start(argv[0], environment);
      due += pause;
    }
    struct pollfd wait = {.fd = input, .events = POLLIN};
    poll(&wait, 1, 1);
    kill_those_that_say_so(input);
  }
  printf("seconds %.3f\n", now() - begin);
  return 0;
}
