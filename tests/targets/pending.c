/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose threads have freed blocks without a sample after that, and its ends: pending WAY. Four threads
 * allocate 100 blocks each in keep_blocks() and free 30 of them. Then the process
 *
 *   killed   kills itself
 *   _exit    ends without exit handlers
 *   exit     ends
 *   idle     prints "ready", waits for the end of its standard input, and ends
 *
 * With other ways, the process or its child allocates 1000 blocks in keep_blocks() and frees 990 of them:
 *
 *   fork     the child of fork(2)
 *   raw      the child of the system call fork, of which libc and libraries hear nothing
 *   vfork    the child of vfork(2)
 *   seccomp  the process, to which the kernel refuses all system calls with numbers from 334 to 400
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 4, kBlocks = 100, kFreed = 30, kMany = 1000, kManyFreed = 990, kSize = 100 };

static void* blocks[kMany];
static pthread_barrier_t freed;

__attribute__((noinline, noclone)) void keep_blocks(void** to, int count) {
  for (int i = 0; i < count; i++) to[i] = malloc(kSize);
}

static void free_blocks(void** from, int count) {
  for (int i = 0; i < count; i++) free(from[i]);
}

static void* work(void* unused) {
  (void)unused;
  void* own[kBlocks];
  keep_blocks(own, kBlocks);
  free_blocks(own, kFreed);
  pthread_barrier_wait(&freed);
  for (;;) pause();
  return NULL;
}

static int keep_many(void) {
  keep_blocks(blocks, kMany);
  free_blocks(blocks, kManyFreed);
  return 0;
}

static int has_status(pid_t child) {
  int status = 1;
  waitpid(child, &status, 0);
  return status != 0;
}

static int refuse_system_calls(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 334, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 400, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const char* way = argv[1];
  if (strcmp(way, "seccomp") == 0) return refuse_system_calls() || keep_many();
  const int is_raw = strcmp(way, "raw") == 0;
  if (is_raw || strcmp(way, "fork") == 0) {
    /* Samples of the parent come first. */
    keep_blocks(blocks, kBlocks);
    free_blocks(blocks, kBlocks);
    const pid_t child = is_raw ? (pid_t)syscall(SYS_fork) : fork();
    if (child == 0) _exit(keep_many());
    return has_status(child);
  }
  if (strcmp(way, "vfork") == 0) {
    const pid_t child = vfork();
    if (child == 0) _exit(keep_many());
    return has_status(child);
  }
  pthread_barrier_init(&freed, NULL, kThreads + 1);
  for (int i = 0; i < kThreads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
  }
  pthread_barrier_wait(&freed);
  if (strcmp(way, "killed") == 0) kill(getpid(), SIGKILL);
  if (strcmp(way, "_exit") == 0) _exit(0);
  if (strcmp(way, "idle") == 0) {
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) continue;
  }
  return 0;
}
