/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Words of the walked thread's memory and its registers, as bpf/unwind_step.h wants them.
 */
#ifndef HEAPTAP_MEMORY_BPF_H_
#define HEAPTAP_MEMORY_BPF_H_

#include "bpf/scratch.bpf.h"

/* The list of mappings may be locked by another thread for the moment; so many tries take some ten microseconds. */
#define MAPPING_TRIES 500

/* Makes the window begin at RSP, or where the page of the address begins. Returns 0, or a negative errno. */
static __noinline int move_window(struct scratch* mine, __u64 address) {
  if (!mine) return -1; /* never */
  __u64 begin = address & ~(WINDOW_BYTES - 1ULL);
  __u64 rsp = mine->frame.rsp & ~7ULL;
  if (begin < rsp && rsp <= address) begin = rsp;
  __u64 bytes = WINDOW_BYTES - (begin & (WINDOW_BYTES - 1));
  int error = bpf_probe_read_user(mine->window, bytes, (const void*)begin);
  mine->window_begin = begin;
  mine->window_bytes = error ? 0 : bytes;
  return error;
}

/* Returns 0, or 1 if the word is not in the window. */
static __always_inline int read_window(const struct scratch* mine, __u64 address, __u64* word) {
  __u64 offset = address - mine->window_begin;
  if (offset >= mine->window_bytes || (offset & 7) != 0) return 1;
#ifdef __bpf__
  /* The compiler knows that this changes nothing, the verifier does not. */
  asm volatile("%0 &= %1" : "+r"(offset) : "i"(WINDOW_BYTES - 8));
#endif
  *word = *(const __u64*)((const char*)mine->window + offset);
  return 0;
}

/* Returns 0, or not. */
static __always_inline int read_word(struct scratch* mine, __u64 address, __u64* word) {
  if (!read_window(mine, address, word)) return 0;
  if (address & 7) return bpf_probe_read_user(word, sizeof(*word), (const void*)address);
  return move_window(mine, address) || read_window(mine, address, word);
}

static __always_inline int read_register(struct scratch* mine, __u32 number, __u64* word) {
  *word = mine->registers[number & 15];
  return 0;
}

#define HEAPTAP_UNWIND_READ(context, address, word) read_word(context, address, word)
#define HEAPTAP_UNWIND_REGISTER(context, number, word) read_register(context, number, word)

#endif /* HEAPTAP_MEMORY_BPF_H_ */
