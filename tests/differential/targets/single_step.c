/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler that allocates after every single instruction (the processor's trap flag): of prologues and epilogues, of
 * stubs of the PLT, and of the dynamic linker, which binds lazily here.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "keep.h"
#include "libplt.h"

enum { TRAP_FLAG = 0x100 };

static volatile sig_atomic_t is_over;

static void set_trap_flag(void* context, int on) {
  greg_t* flags = &((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL];
  *flags = on ? *flags | TRAP_FLAG : *flags & ~TRAP_FLAG;
}

static void on_begin(int number, siginfo_t* information, void* context) {
  (void)number, (void)information;
  set_trap_flag(context, 1);
}

static void on_step(int number, siginfo_t* information, void* context) {
  (void)number, (void)information;
  keep(48);
  set_trap_flag(context, !is_over);
}

static NOINLINE int many_registers(const int* from, int count) {
  int sums[6] = {0};
  for (int i = 0; i + 6 <= count; i += 6) {
    for (int k = 0; k < 6; k++) {
      sums[k] += from[i + k] * (k + 1);
    }
  }
  plt_nothing(sums[0]);
  return plt_add(sums[0] ^ sums[1], sums[2] ^ sums[3]) + plt_add(sums[4], sums[5]);
}

static NOINLINE int variable(int count) {
  int numbers[count];
  for (int i = 0; i < count; i++) {
    numbers[i] = i * i;
  }
  return many_registers(numbers, count);
}

static void set(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(number, &action, NULL);
}

int main(void) {
  set(SIGUSR1, on_begin);
  set(SIGTRAP, on_step);
  keep(10); /* the allocator is ready before the first step */
  raise(SIGUSR1);
  int sum = variable(12); /* binds plt_nothing and plt_add */
  for (int round = 0; round < 200; round++) {
    sum += variable(6 + round % 10);
  }
  is_over = 1;
  return sum == 0;
}
