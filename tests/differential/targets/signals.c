/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers that allocate: on the stack that was interrupted and on an alternate one, one within another, and on a
 * fault in the middle of a function without a frame.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "keep.h"

static char* volatile page;

static NOINLINE void below_handler(int level) {
  keep(64 + level);
  if (level > 0) {
    below_handler(level - 1);
  }
  NOT_A_TAIL_CALL;
}

static void on_plain(int number) {
  (void)number;
  below_handler(3);
}

static void on_alternate(int number) {
  (void)number;
  below_handler(2);
}

/* Interrupted by another handler, on the same or another stack. */
static void on_outer(int number) {
  char room[200];
  memset(room, number, sizeof room);
  raise(SIGUSR1);
  raise(SIGUSR2);
  keep((size_t)room[100] + 500);
}

static void on_fault(int number) {
  (void)number;
  keep(5000);
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static NOINLINE char faults(const char* at) {
  keep(700);
  return *at;
}

static NOINLINE char leaf(char* at) {
  *at += 1;
  return at[1];
}

static NOINLINE int work(int level) {
  char room[300];
  memset(room, level, sizeof room);
  if (level == 0) {
    raise(SIGUSR1);
    raise(SIGUSR2);
    raise(SIGRTMIN);
    raise(SIGRTMIN + 1);
    mprotect(page, 4096, PROT_NONE);
    faults(page);
    mprotect(page, 4096, PROT_NONE);
    leaf(page);
  } else {
    work(level - 1);
  }
  return room[level];
}

static void set(int number, void (*handler)(int), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  sigaction(number, &action, NULL);
}

int main(void) {
  static char stack[1 << 18];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&alternate, NULL);
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  set(SIGUSR1, on_plain, 0);
  set(SIGUSR2, on_alternate, SA_ONSTACK);
  set(SIGRTMIN, on_outer, 0);
  set(SIGRTMIN + 1, on_outer, SA_ONSTACK);
  set(SIGSEGV, on_fault, SA_ONSTACK);
  for (int round = 0; round < 100; round++) {
    work(round % 5);
  }
  return 0;
}
