/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probes of an allocator in a program that lies to its collector: each function fires one. Include it in one file
 * of a program.
 */
#ifndef HEAPTAP_TESTS_TARGETS_HOSTILE_PROBES_H_
#define HEAPTAP_TESTS_TARGETS_HOSTILE_PROBES_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heaptap/contract.h"
#include "probe_note.h"

/* clang-format off */
#define PROBE(function, provider, name, arguments)                            \
  __asm__(                                                                    \
      ".text\n"                                                               \
      ".globl " function "\n"                                                 \
      ".type " function ", @function\n"                                       \
      function ": .cfi_startproc\n"                                           \
      "990: nop\n"                                                            \
      "ret\n"                                                                 \
      ".cfi_endproc\n"                                                        \
      ".size " function ", .-" function "\n"                                  \
      PROBE_NOTE(provider, name, "0", arguments))
/* clang-format on */

void fire_alloc(uintptr_t block, size_t size, size_t weight);
void fire_free(uintptr_t block);
void fire_start(uintptr_t control);
void fire_dump(uintptr_t request);
PROBE("fire_alloc", "otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx");
PROBE("fire_free", "otel_memory", "free", "8@%rdi");
PROBE("fire_start", "heaptap", "start", "8@%rdi");
PROBE("fire_dump", "heaptap", "dump", "8@%rdi");

enum { PAGE = 4096, BLOCK = 64 };

static inline void die(const char* what) {
  perror(what);
  exit(1);
}

static inline void* page(void) {
  void* memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  return memory;
}

static inline void make_valid(struct heaptap_control* control) {
  *control = (struct heaptap_control){
      .magic = HEAPTAP_CONTROL_MAGIC,
      .version = HEAPTAP_CONTROL_VERSION,
      .size = sizeof *control,
      .pid = (uint32_t)getpid(),
      .active = 1,
      .lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE,
      .collector_lg_sample = HEAPTAP_NO_RATE,
  };
}

/* The address of a block that has not been sampled before. */
static inline uintptr_t new_block(void) {
  static uintptr_t block = 0x1000;
  return block += BLOCK;
}

#endif /* HEAPTAP_TESTS_TARGETS_HOSTILE_PROBES_H_ */
