/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forged stacks: forged COUNT LIE... forks a child for each LIE, which fires its own probe otel_memory:alloc COUNT
 * times for blocks of 64 bytes, with RSP, RBP and their memory set by prepare(), and prints "LIE PID". fire() has an
 * unwind rule (always CFA = RSP + 8), fire_bare() has none, so it is unwound by RBP.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe_note.h"

/* clang-format off */
#define FIRE(name, probe, arguments, begin, end)                              \
  __asm__(                                                                    \
      ".text\n"                                                               \
      ".globl " name "\n"                                                     \
      ".type " name ", @function\n"                                           \
      name ":\n"                                                              \
      begin                                                                   \
      "mov %rsp, saved_rsp(%rip)\n"                                           \
      "mov %rbp, saved_rbp(%rip)\n"                                           \
      "mov %rdi, %rsp\n"                                                      \
      "mov %rsi, %rbp\n"                                                      \
      "mov %rdx, %rdi\n"                                                      \
      "mov $64, %esi\n"                                                       \
      "mov $64, %edx\n"                                                       \
      "990: nop\n"                                                            \
      "mov saved_rsp(%rip), %rsp\n"                                           \
      "mov saved_rbp(%rip), %rbp\n"                                           \
      "ret\n"                                                                 \
      end                                                                     \
      ".size " name ", .-" name "\n"                                          \
      PROBE_NOTE("otel_memory", probe, "0", arguments))
/* clang-format on */

void fire(uintptr_t rsp, uintptr_t rbp, uintptr_t block);
void fire_bare(uintptr_t rsp, uintptr_t rbp, uintptr_t block);
FIRE("fire", "alloc", "8@%rdi 8@%rsi 8@%rdx", ".cfi_startproc\n", ".cfi_endproc\n");
FIRE("fire_bare", "alloc", "8@%rdi 8@%rsi 8@%rdx", "", "");
/* Never runs; it only provides this probe, which a sampled allocator needs. */
FIRE("take_back", "free", "8@%rdi", "", "");

__attribute__((used)) static uintptr_t saved_rsp, saved_rbp;

/* Return addresses in these functions can be unwound: with_rsp's CFA is RSP + 8, with_rbp's is RBP + 16. Neither runs.
 */
void with_rsp(void);
void with_rbp(void);
__asm__(
    ".text\n"
    "with_rsp: .cfi_startproc\nud2\nud2\n.cfi_endproc\n"
    "with_rbp: .cfi_startproc\n.cfi_def_cfa rbp, 16\n.cfi_offset rbp, -16\nud2\nud2\n.cfi_endproc\n");

enum { PAGE = 4096, WORDS = PAGE / sizeof(uintptr_t) };

/* Two pages with nothing mapped after them. */
static uintptr_t* words;

static uintptr_t in_rsp(void) { return (uintptr_t)with_rsp + 2; }
static uintptr_t in_rbp(void) { return (uintptr_t)with_rbp + 2; }
static uintptr_t at(size_t word) { return (uintptr_t)&words[word]; }

static void fill(uintptr_t value) {
  for (size_t i = 0; i < 2 * WORDS; i++) words[i] = value;
}

/* Frame pointers from one frame of two words to the next, and back to the first at the end. */
static void chain(size_t frames) {
  for (size_t i = 0; i < frames; i++) {
    words[2 * i] = at(i + 1 < frames ? 2 * i + 2 : 0);
    words[2 * i + 1] = in_rbp();
  }
}

static struct lie {
  const char* name;
  int bare;
  uintptr_t rsp, rbp;
} lie;

static int prepare(const char* name) {
  lie = (struct lie){.name = name, .rsp = at(0)};
  fill(0);
  if (strncmp(name, "rsp=", 4) == 0) {
    lie.rsp = strtoul(name + 4, NULL, 0);
  } else if (strncmp(name, "return=", 7) == 0) {
    fill(strtoul(name + 7, NULL, 0));
  } else if (strncmp(name, "rbp=", 4) == 0) {
    lie.bare = 1;
    lie.rbp = strtoul(name + 4, NULL, 0);
  } else if (strcmp(name, "return_to_data") == 0) {
    fill(at(0));
  } else if (strcmp(name, "endless") == 0) {
    fill(in_rsp());
  } else if (strcmp(name, "last_word") == 0) {
    fill(in_rsp());
    lie.rsp = at(2 * WORDS - 1);
  } else if (strcmp(name, "unaligned") == 0) {
    fill(in_rsp());
    lie.rsp = at(2 * WORDS - 4) + 3;
  } else if (strcmp(name, "behind") == 0) {
    lie.rsp = at(2 * WORDS);
  } else if (strcmp(name, "chain") == 0) {
    chain(20);
    words[39] = 0;
    lie.bare = 1;
    lie.rbp = at(0);
  } else if (strcmp(name, "cyclic") == 0) {
    chain(20);
    lie.bare = 1;
    lie.rbp = at(0);
  } else if (strcmp(name, "to_itself") == 0) {
    fill(in_rbp());
    words[0] = at(0);
    lie.bare = 1;
    lie.rbp = at(0);
  } else if (strcmp(name, "last_frame_pointer") == 0) {
    lie.bare = 1;
    lie.rbp = at(2 * WORDS - 1);
  } else {
    return -1;
  }
  return 0;
}

static void tell(const char* name, long count) {
  if (prepare(name) != 0) _exit(1);
  for (long i = 0; i < count; i++) {
    (lie.bare ? fire_bare : fire)(lie.rsp, lie.rbp, 0x1000 + 64 * (uintptr_t)i);
  }
  _exit(0);
}

int main(int argc, char** argv) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOFBF, sizeof output);
  words = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (words == MAP_FAILED || munmap(words + 2 * WORDS, PAGE) != 0) return 1;
  for (int i = 2; i < argc; i++) {
    int status;
    pid_t child = fork();
    if (child == 0) tell(argv[i], atol(argv[1]));
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    printf("%s %d\n", argv[i], (int)child);
  }
  return 0;
}
