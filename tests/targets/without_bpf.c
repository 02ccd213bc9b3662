/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates a kernel without bpf(2), or one that forbids it: without_bpf ENOSYS|EPERM CMD... runs CMD with a seccomp
 * filter under which bpf(2) fails with this error, as in old kernels and in containers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: without_bpf ENOSYS|EPERM CMD...\n");
    return 2;
  }
  unsigned error = strcmp(argv[1], "ENOSYS") == 0 ? ENOSYS : EPERM;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_bpf, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("without_bpf");
    return 2;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
