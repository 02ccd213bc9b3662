/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Odd circumstances of a process, one for each run: odd WAY [ARGUMENT]. It ends with 0 if its blocks are right.
 *
 *   audit                nothing odd: for LD_AUDIT, set-user-ID and the like
 *   vfork PROGRAM        a child that shares the memory allocates; posix_spawn of PROGRAM
 *   signal               a signal handler allocates and frees, while the program does not allocate
 *   locked               all memory is locked, also what comes later
 *   limit                address space and data have a limit that is nearly reached
 *   sandbox              a seccomp filter that kills on all calls but those that libheaptap(3) lists
 *   guest LIBRARY        opens the guest while it runs
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "sampling.h"

extern char** environ;

/* Allocates, fills and frees blocks of all sizes. */
static void UseBlocks(void) {
  enum { kBlocks = 64 };
  static unsigned char* blocks[kBlocks];
  static size_t sizes[kBlocks];
  for (size_t i = 0; i < 2000; i++) {
    size_t at = i * 7 % kBlocks;
    for (size_t k = 0; k < sizes[at]; k++) CHECK(blocks[at][k] == (unsigned char)sizes[at]);
    size_t size = i % 50 == 0 ? 100000 + i : i * 13 % 3000;
    blocks[at] = i % 3 == 0 ? realloc(blocks[at], size) : (free(blocks[at]), malloc(size));
    CHECK(blocks[at] != NULL || size == 0);
    sizes[at] = blocks[at] != NULL ? size : 0;
    memset(blocks[at], (int)size, sizes[at]);
  }
  for (size_t i = 0; i < kBlocks; i++) {
    free(blocks[i]);
    blocks[i] = NULL;
    sizes[i] = 0;
  }
}

static void Vfork(char* program) {
  for (int i = 0; i < 50; i++) {
    pid_t child = vfork();
    if (child == 0) {
      UseBlocks();
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    char* arguments[] = {program, NULL};
    CHECK(posix_spawn(&child, program, NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
}

static volatile sig_atomic_t signals;

static void Handle(int number) {
  (void)number;
  free(realloc(malloc(100), 5000));
  signals++;
}

static void Signal(void) {
  signal(SIGALRM, Handle);
  struct itimerval timer = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &timer, NULL);
  while (signals < 300) {
    if (signals % 100 == 0) SwitchSamplingOn();
  }
  timer = (struct itimerval){0};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void Locked(void) {
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  UseBlocks();
  free(malloc(40 << 20));
}

static void Limit(void) {
  static char line[256];
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  CHECK(fgets(line, sizeof(line), file) != NULL && sscanf(line, "%ld", &pages) == 1);
  fclose(file);
  /* Enough for a host, not for slots of the guest. */
  struct rlimit limit = {(size_t)pages * 4096 + (200 << 20), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  UseBlocks();
  limit.rlim_cur = 300 << 20;
  setrlimit(RLIMIT_DATA, &limit);
  UseBlocks();
  CHECK(malloc((size_t)1 << 40) == NULL);
}

static void Sandbox(void) {
  static const int kCalls[] = {SYS_mmap,  SYS_munmap, SYS_mprotect,  SYS_mremap, SYS_brk,       SYS_madvise,
                               SYS_write, SYS_uname,  SYS_prlimit64, SYS_futex,  SYS_exit_group};
  enum { kCount = sizeof(kCalls) / sizeof(kCalls[0]) };
  static struct sock_filter filter[kCount + 3];
  filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (unsigned i = 0; i < kCount; i++) {
    filter[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kCalls[i], kCount - i, 0);
  }
  filter[kCount + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  filter[kCount + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {kCount + 3, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  /* A collector attaches. */
  struct heaptap_control* control = Control();
  if (control != NULL) {
    control->collector_lg_sample = 0;
    *(volatile uint16_t*)control->alloc_semaphore = 1;
  }
  UseBlocks();
  free(malloc(40 << 20));
  _exit(failures != 0);
}

static void Open(const char* library) {
  void* before = malloc(100);
  void* opened = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  CHECK(opened != NULL);
  free(before);
  SwitchSamplingOn();
  UseBlocks();
  if (opened != NULL) dlclose(opened);
  UseBlocks();
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* way = argv[1];
  if (strcmp(way, "sandbox") != 0) SwitchSamplingOn();
  UseBlocks();
  if (strcmp(way, "vfork") == 0) Vfork(argv[2]);
  if (strcmp(way, "signal") == 0) Signal();
  if (strcmp(way, "locked") == 0) Locked();
  if (strcmp(way, "limit") == 0) Limit();
  if (strcmp(way, "sandbox") == 0) Sandbox();
  if (strcmp(way, "guest") == 0) Open(argv[2]);
  UseBlocks();
  return failures != 0;
}
