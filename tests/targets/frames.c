/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of every kind, compiled without frame pointers. Prints "ready PID"; then for each line WHAT COUNT it runs WHAT
 * COUNT times, with one kept block of 64 bytes each, all in allocate(), and answers "done". For WHAT see `commands`.
 *
 * frames_realigned is compiled with -mstackrealign: every function aligns its own frame.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
/* The compiler must leave this memory where it is. */
#define USE(memory) __asm__ volatile("" ::"r"(memory) : "memory")

static void* volatile kept;

NOINLINE void allocate(void) { kept = malloc(64); }

NOINLINE void chain_third(void) { allocate(); }
NOINLINE void chain_second(void) { chain_third(); }
NOINLINE void chain_first(void) { chain_second(); }

NOINLINE void* thread_body(void* argument) {
  chain_first();
  return argument;
}

NOINLINE void in_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, thread_body, NULL) == 0) pthread_join(thread, NULL);
}

NOINLINE void descend(int frames) {
  if (frames > 1) {
    descend(frames - 1);
  } else {
    allocate();
  }
  USE(&frames);
}

NOINLINE void deep(void) { descend(200); }
NOINLINE void deeper_than_a_walk(void) { descend(1500); }

/* Faults are signals at an instruction that is known. The handler allocates and steps over the two bytes of ud2. */
NOINLINE void on_fault(int number, siginfo_t* information, void* context) {
  (void)number;
  (void)information;
  allocate();
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

NOINLINE void interrupted(void) {
  char local[200];
  USE(local);
  __asm__ volatile("ud2" ::: "memory");
  USE(local);
}

/* The fault is at the very first instruction, right after another function with different frames. */
void interrupted_at_entry(void);
__asm__(
    ".text\n"
    ".type never_called, @function\n"
    "never_called:\n"
    ".cfi_startproc\n"
    ".cfi_def_cfa_offset 4096\n"
    "ud2\n"
    ".cfi_endproc\n"
    ".size never_called, .-never_called\n"
    ".type interrupted_at_entry, @function\n"
    "interrupted_at_entry:\n"
    ".cfi_startproc\n"
    "ud2\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size interrupted_at_entry, .-interrupted_at_entry\n");

static void handle_faults(int flags) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | flags};
  sigaction(SIGILL, &action, NULL);
}

NOINLINE void in_signal(void) {
  handle_faults(0);
  interrupted();
}

NOINLINE void in_signal_at_entry(void) {
  handle_faults(0);
  interrupted_at_entry();
}

NOINLINE void in_alternate_signal(void) {
  static char memory[65536];
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  sigaltstack(&stack, NULL);
  handle_faults(SA_ONSTACK);
  interrupted();
}

/* The handler returns from the call. */
NOINLINE void on_null_call(int number, siginfo_t* information, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  (void)number;
  (void)information;
  allocate();
  registers[REG_RIP] = *(greg_t*)registers[REG_RSP];
  registers[REG_RSP] += 8;
}

NOINLINE void call(void (*function)(void)) {
  function();
  USE(&function);
}

NOINLINE void in_null_call(void) {
  struct sigaction action = {.sa_sigaction = on_null_call, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  call(NULL);
}

/* A vfork child is on its parent's stack, in its parent's memory. */
NOINLINE void in_vfork_child(void) {
  pid_t child = vfork();
  if (child == 0) {
    allocate();
    execl("/bin/true", "true", (char*)NULL);
    _exit(127);
  }
  waitpid(child, NULL, 0);
}

#ifdef __GLIBC__ /* musl has no contexts */
static ucontext_t here, there;

NOINLINE void coroutine(void) {
  allocate();
  swapcontext(&there, &here);
}

NOINLINE void in_coroutine(void) {
  static char memory[65536];
  getcontext(&there);
  there.uc_stack.ss_sp = memory;
  there.uc_stack.ss_size = sizeof memory;
  there.uc_link = &here;
  makecontext(&there, coroutine, 0);
  swapcontext(&here, &there);
}
#endif

/* Calls a function on a stack whose bottom is two words with this number, and RBP points at them. Without unwind
 * information, as hand-written code. */
void call_on(void* bottom, void (*function)(void), unsigned long number);
__asm__(
    ".text\n"
    ".type call_on, @function\n"
    "call_on:\n"
    "push %rbp\n"
    "push %rbx\n"
    "mov %rsp, %rbx\n"
    "mov %rdi, %rsp\n"
    "push %rdx\n"
    "push %rdx\n"
    "mov %rsp, %rbp\n"
    "call *%rsi\n"
    "mov %rbx, %rsp\n"
    "pop %rbx\n"
    "pop %rbp\n"
    "ret\n"
    ".size call_on, .-call_on\n");

/* With another number each time. */
NOINLINE void on_own_stack(void) {
  static char memory[65536] __attribute__((aligned(16)));
  static unsigned long number;
  call_on(memory + sizeof memory, allocate, 0x1234500000 + 8 * number++);
}

NOINLINE void aligned(void) {
  _Alignas(64) char local[128];
  USE(local);
  allocate();
  USE(local);
}

/* Arguments on the stack, an aligned frame and one whose size is not known: the CFA is where a word of the frame says.
 */
NOINLINE long aligned_by_pointer(long a, long b, long c, long d, long e, long f, long g, size_t size) {
  _Alignas(64) char local[128];
  char* variable = alloca(size);
  USE(local);
  USE(variable);
  allocate();
  USE(local);
  return a + b + c + d + e + f + g;
}

NOINLINE void through_pointer(void) { kept = (void*)aligned_by_pointer(1, 2, 3, 4, 5, 6, 7, (size_t)getpid() % 1000); }

NOINLINE void variable_size(size_t size) {
  char local[size];
  USE(local);
  allocate();
  USE(local);
}

NOINLINE void variable(void) { variable_size((size_t)getpid() % 1000 + 1); }

/* A frame larger than the copy of a raw stack. */
NOINLINE void large_frame(void) {
  char local[40000];
  USE(local);
  allocate();
  USE(local);
}

/* Frames of over 256 KiB, for whose size a usual unwind rule has no room. */
NOINLINE void huge_frame(void) {
  char local[300000];
  USE(local);
  allocate();
  USE(local);
}

NOINLINE void vast_frame(void) {
  char local[2 << 20];
  USE(local);
  huge_frame();
  USE(local);
}

static const struct {
  const char* name;
  void (*run)(void);
} commands[] = {
    {"chain", chain_first},
    {"thread", in_thread},
    {"deep", deep},
    {"deeper_than_a_walk", deeper_than_a_walk},
    {"signal", in_signal},
    {"signal_at_entry", in_signal_at_entry},
    {"alternate_signal", in_alternate_signal},
    {"vfork", in_vfork_child},
    {"null_call", in_null_call},
#ifdef __GLIBC__
    {"coroutine", in_coroutine},
#endif
    {"own_stack", on_own_stack},
    {"aligned", aligned},
    {"through_pointer", through_pointer},
    {"variable", variable},
    {"large_frame", large_frame},
    {"vast_frame", vast_frame},
};

int main(void) {
  static char input[BUFSIZ], output[BUFSIZ];
  static char line[256], name[256];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  while (fgets(line, sizeof line, stdin) != NULL) {
    long count = 0;
    if (sscanf(line, "%255s %ld", name, &count) != 2) return 1;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
      for (long done = 0; strcmp(name, commands[i].name) == 0 && done < count; done++) commands[i].run();
    }
    printf("done\n");
  }
  return 0;
}
