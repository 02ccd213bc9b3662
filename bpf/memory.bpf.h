/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Words of the walked thread's memory and its registers, as bpf/unwind_step.h wants them.
 */
#ifndef HEAPTAP_MEMORY_BPF_H_
#define HEAPTAP_MEMORY_BPF_H_

#include "bpf/scratch.bpf.h"

/* A frame's own words lie from its RSP on; if the window is to begin there, the word must be this near. */
#define NEAR_BYTES (WINDOW_WORDS / 2 * 8)

static __noinline int move_window(struct scratch* mine, __u64 address, __u64* word) {
  __u64 begin = mine->frame.rsp;
  if (address - begin > NEAR_BYTES) begin = address - NEAR_BYTES / 2;
  begin &= ~7ULL;
  mine->window_begin = ~0ULL;
  if ((address & 7) == 0 && bpf_probe_read_user(mine->window, sizeof(mine->window), (const void*)begin) == 0)
    mine->window_begin = begin;
  /* Else the window reaches beyond the end of the stack. */
  return bpf_probe_read_user(word, sizeof(*word), (const void*)address);
}

/* Returns 0, or a negative errno. */
static __always_inline int read_word(struct scratch* mine, __u64 address, __u64* word) {
  __u64 offset = address - mine->window_begin;
  if (offset >= WINDOW_WORDS * 8 || (offset & 7) != 0) {
    __u64 value = 0;
    int error = move_window(mine, address, &value);
    *word = value;
    return error;
  }
  __u64 index = offset / 8;
#ifdef __bpf__
  /* The compiler knows that this changes nothing, the verifier does not. */
  asm volatile("%0 &= %1" : "+r"(index) : "i"(WINDOW_WORDS - 1));
#endif
  *word = mine->window[index];
  return 0;
}

static __always_inline int read_register(struct scratch* mine, __u32 number, __u64* word) {
  *word = mine->registers[number & 15];
  return 0;
}

#define HEAPTAP_UNWIND_READ(context, address, word) read_word(context, address, word)
#define HEAPTAP_UNWIND_REGISTER(context, number, word) read_register(context, number, word)

#endif /* HEAPTAP_MEMORY_BPF_H_ */
