/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program and refuses some of its system calls:
 *
 *   refuse_call KIND ERRNO FIRST LAST CALLER PROGRAM [ARGUMENT...]
 *
 * The FIRST to the LAST call of a kind fail with ERRNO, a number, and do nothing; FIRST 0: none fails. Only calls from
 * the code of a file count whose path contains CALLER; "any": those of all code, from when the program says
 * prctl(REFUSE_FROM_NOW). The program ends the failures with prctl(REFUSE_NO_MORE). Descendants count too, and all
 * threads together.
 *
 * Prints "KIND CALLS" for each kind that was called before that, and "refused N". Exits with the program's status, 128
 * and the signal's number if one killed it, or 127 if it could not be started.
 *
 * The kernel asks this process for each call that may matter (seccomp_unotify(2)), and waits for its answer.
 */
#define _GNU_SOURCE
#include "refuse_call.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool IsAny(const __u64* arguments) {
  (void)arguments;
  return true;
}

static bool IsRenewal(const __u64* arguments) { return (arguments[3] & MAP_FIXED) != 0; }
static bool IsMap(const __u64* arguments) { return !IsRenewal(arguments); }
static bool IsOpening(const __u64* arguments) { return (arguments[2] & PROT_WRITE) != 0; }
static bool IsClosing(const __u64* arguments) { return !IsOpening(arguments); }
static bool IsThread(const __u64* arguments) { return (arguments[0] & CLONE_VM) != 0; }
static bool IsShrinking(const __u64* arguments) { return arguments[2] <= arguments[1]; }
static bool IsGrowing(const __u64* arguments) { return !IsShrinking(arguments); }

static const struct kind {
  const char* name;
  int call;
  bool (*matches)(const __u64* arguments);
} kinds[] = {
    {"mmap", SYS_mmap, IsMap},
    /* New pages in place of others. */
    {"mmap-renew", SYS_mmap, IsRenewal},
    {"mprotect-open", SYS_mprotect, IsOpening},
    {"mprotect-close", SYS_mprotect, IsClosing},
    {"munmap", SYS_munmap, IsAny},
    {"madvise", SYS_madvise, IsAny},
    {"mremap-grow", SYS_mremap, IsGrowing},
    {"mremap-shrink", SYS_mremap, IsShrinking},
    {"membarrier", SYS_membarrier, IsAny},
    {"prlimit64", SYS_prlimit64, IsAny},
    {"prctl", SYS_prctl, IsAny},
    {"uname", SYS_uname, IsAny},
    {"clone", SYS_clone, IsThread},
    {"clone3", SYS_clone3, IsAny},
    {"rt_sigprocmask", SYS_rt_sigprocmask, IsAny},
    {"clock_gettime", SYS_clock_gettime, IsAny},
    {"readlink", SYS_readlink, IsAny},
    {"readlinkat", SYS_readlinkat, IsAny},
    {"stat", SYS_stat, IsAny},
    {"openat", SYS_openat, IsAny},
    {"pread64", SYS_pread64, IsAny},
    {"memfd_create", SYS_memfd_create, IsAny},
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), STACK_BYTES = 64 << 10, MAPS_LINE = 4096 };

static long counts[KINDS];
static long refused;
static bool begun;
static bool ended;
static int listener = -1;

/* The code of CALLER, as soon as the program has mapped it. */
static uintptr_t code_begin;
static uintptr_t code_end;

static void FindCode(pid_t pid, const char* caller) {
  char line[MAPS_LINE];
  snprintf(line, sizeof(line), "/proc/%d/maps", pid);
  FILE* maps = fopen(line, "r");
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    uintptr_t begin;
    uintptr_t end;
    char rights[5];
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3 || rights[2] != 'x') continue;
    if (strstr(line, caller) == NULL) continue;
    code_begin = begin;
    code_end = end;
  }
  if (maps != NULL) fclose(maps);
}

static bool IsFrom(const struct seccomp_notif* call, const char* caller) {
  if (strcmp(caller, "any") == 0) return begun;
  if (code_end == 0) FindCode((pid_t)call->pid, caller);
  return call->data.instruction_pointer >= code_begin && call->data.instruction_pointer < code_end;
}

static const struct kind* KindOf(const struct seccomp_data* call) {
  for (const struct kind* kind = kinds; kind < kinds + KINDS; kind++) {
    if (kind->call == call->nr && kind->matches(call->args)) return kind;
  }
  return NULL;
}

/* Runs in the memory and with the descriptors of this process, until the program begins. */
static int Begin(void* opaque) {
  char** command = opaque;
  struct sock_filter filter[KINDS * 2 + 2];
  unsigned length = 0;
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < KINDS; i++) {
    filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kinds[i].call, 0, 1);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
  }
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {(unsigned short)length, filter};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  if (listener >= 0) execv(command[0], command);
  _exit(127);
}

static bool IsMessage(const struct seccomp_data* call) {
  return call->nr == SYS_prctl && (call->args[0] == REFUSE_FROM_NOW || call->args[0] == REFUSE_NO_MORE);
}

static void Answer(const char* kind, int error, long first, long last, const char* caller) {
  struct seccomp_notif call = {0};
  /* The caller may be killed meanwhile. */
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;
  struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
  const struct kind* called = KindOf(&call.data);
  if (IsMessage(&call.data)) {
    begun = true;
    ended = call.data.args[0] == REFUSE_NO_MORE;
    answer.flags = 0;
  } else if (!ended && called != NULL && IsFrom(&call, caller)) {
    const long number = ++counts[called - kinds];
    if (strcmp(called->name, kind) == 0 && first > 0 && number >= first && number <= last) {
      refused++;
      answer.flags = 0;
      answer.error = -error;
    }
  }
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

int main(int argc, char** argv) {
  if (argc < 7) {
    fprintf(stderr, "usage: refuse_call KIND ERRNO FIRST LAST CALLER PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  static char stack[STACK_BYTES] __attribute__((aligned(16)));
  const pid_t pid = clone(Begin, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, argv + 6);
  if (pid < 0 || listener < 0) {
    fprintf(stderr, "refuse_call: %s: %s\n", argv[6], strerror(errno));
    return 2;
  }
  struct pollfd events[] = {{.fd = listener, .events = POLLIN},
                            {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN}};
  while (events[1].revents == 0 && poll(events, 2, -1) > 0) {
    if ((events[0].revents & POLLIN) != 0) Answer(argv[1], atoi(argv[2]), atol(argv[3]), atol(argv[4]), argv[5]);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  for (int i = 0; i < KINDS; i++) {
    if (counts[i] != 0) printf("%s %ld\n", kinds[i].name, counts[i]);
  }
  printf("refused %ld\n", refused);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
