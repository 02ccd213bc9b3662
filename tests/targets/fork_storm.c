/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork() while other threads, or the interrupted program itself, hold locks that fork needs. A hang is the failure: run
 * it under timeout(1), with libheaptap.so preloaded.
 *
 *   fork_storm streams FORKS    while other threads flush all streams, and read lines into blocks that grow
 *   fork_storm handler FORKS    in a signal handler that interrupts malloc or fork, in a process of one thread
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;
static atomic_int failures;
static volatile sig_atomic_t forks_in_handler;

/* A child that allocates and ends. Async-signal-safe if it does not allocate. */
static void Fork(int allocates) {
  const pid_t pid = fork();
  if (pid == 0) {
    for (size_t size = 1; allocates && size < 1 << 20; size *= 3) free(malloc(size));
    _exit(0);
  }
  int status = -1;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) failures++;
}

/* Without a lock: libc's locks are not fair, and a thread that takes one repeatedly keeps it. */
static void Rest(void) { usleep(50); }

static void* FlushesAllStreams(void* argument) {
  while (!stop) {
    fflush(NULL);
    Rest();
  }
  return argument;
}

/* getline holds the stream's lock while it allocates. Blocks of so many bytes have runs of their own. */
static void* ReadsLines(void* argument) {
  enum { kLine = 100000 };
  char* text = malloc(kLine);
  memset(text, 'x', kLine);
  text[kLine - 1] = '\n';
  FILE* stream = tmpfile();
  fwrite(text, 1, kLine, stream);
  while (!stop) {
    char* line = NULL;
    size_t size = 0;
    rewind(stream);
    if (getline(&line, &size, stream) != kLine) failures++;
    free(line);
    Rest();
  }
  fclose(stream);
  free(text);
  return argument;
}

static void Streams(int forks) {
  pthread_t threads[4];
  pthread_create(&threads[0], NULL, FlushesAllStreams, NULL);
  for (int i = 1; i < 4; i++) pthread_create(&threads[i], NULL, ReadsLines, NULL);
  for (int i = 0; i < forks; i++) Fork(1);
  stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void SetTimer(void) {
  /* Long enough for the interrupted program to make progress. */
  const struct itimerval timer = {.it_value = {.tv_usec = 300 + forks_in_handler % 100}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void OnTimer(int signal) {
  (void)signal;
  Fork(0);
  forks_in_handler++;
  SetTimer();
}

static void Handler(int forks) {
  struct sigaction action = {.sa_handler = OnTimer, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  SetTimer();
  void* blocks[64] = {0};
  for (unsigned i = 0; forks_in_handler < forks; i++) {
    /* Of all kinds: small ones, runs, and mappings. */
    free(blocks[i % 64]);
    blocks[i % 64] = malloc((size_t)1 << i % 22);
    if (i % 256 == 0) Fork(0);
  }
  signal(SIGALRM, SIG_IGN);
  for (int i = 0; i < 64; i++) free(blocks[i]);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int forks = atoi(argv[2]);
  if (strcmp(argv[1], "streams") == 0) Streams(forks);
  if (strcmp(argv[1], "handler") == 0) Handler(forks);
  return failures != 0;
}
