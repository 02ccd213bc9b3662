/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Memory and registers of the walked thread, and bpf/unwind_step.h, which reads them.
 */
#ifndef HEAPTAP_MEMORY_BPF_H_
#define HEAPTAP_MEMORY_BPF_H_

#include "bpf/kernel.h"
#include "bpf/scratch.bpf.h"

/* bpf_find_vma() fails while another thread holds the lock of the list of mappings. This many tries take some ten
 * microseconds. */
#define MAPPING_TRIES 500

/* Reads `bytes` from RSP into the window, or less if not all of them can be read. */
static __always_inline void begin_window(struct scratch* scratch, __u64 bytes) {
  __u64 begin = scratch->frame.rsp & ~7ULL;
  __u64 bytes_of_page = PAGE_BYTES - (begin & (PAGE_BYTES - 1));
  bytes &= ~7ULL;
  if (bytes == 0 || bytes > WINDOW_BYTES) bytes = bytes_of_page;
  long error = bpf_probe_read_user(scratch->window, bytes, (const void*)begin);
  if (error && bytes > bytes_of_page) {
    bytes = bytes_of_page;
    error = bpf_probe_read_user(scratch->window, bytes, (const void*)begin);
  }
  scratch->window_begin = begin;
  scratch->window_bytes = error ? 0 : bytes;
}

/* Reads the page of `address` into the window, from RSP on if RSP is in the same page and not above the address.
 * Returns 0, or a negative errno. */
__noinline int move_window(struct scratch* scratch, __u64 address) {
  if (!scratch) return -1; /* never */
  __u64 begin = address & ~(PAGE_BYTES - 1ULL);
  __u64 rsp = scratch->frame.rsp & ~7ULL;
  if (begin < rsp && rsp <= address) begin = rsp;
  __u64 bytes = PAGE_BYTES - (begin & (PAGE_BYTES - 1));
  int error = bpf_probe_read_user(scratch->window, bytes, (const void*)begin);
  scratch->window_begin = begin;
  scratch->window_bytes = error ? 0 : bytes;
  return error;
}

/* Reads a word at an offset in the window. Returns 0, or 1 if the word is not in the window. */
static __always_inline int read_window_at(const struct scratch* scratch, __u64 offset, __u64* word) {
  if (offset >= scratch->window_bytes || (offset & 7) != 0) return 1;
#ifdef __bpf__
  /* Redundant, so the compiler would drop it; the verifier needs the bound. */
  asm volatile("%0 &= %1" : "+r"(offset) : "i"(WINDOW_BYTES - 8));
#endif
  *word = *(const __u64*)((const char*)scratch->window + offset);
  return 0;
}

/* Returns 0, or 1 if the word is not in the window. */
static __always_inline int read_window(const struct scratch* scratch, __u64 address, __u64* word) {
  return read_window_at(scratch, address - scratch->window_begin, word);
}

/* Notes a word that decides where the walk goes. */
static __always_inline void note_word(struct scratch* scratch, __u64 address, __u64 word) {
  const __u64 distance = address - (scratch->registers[HEAPTAP_DWARF_RSP] & ~7ULL);
  const __u32 index = scratch->words_read & (WORDS_READ_MAX - 1);
  /* One number for all conditions: the verifier follows what comes after a branch twice. */
  const __u64 misfit =
      distance >> (64 - HEAPTAP_WORD_DISTANCE_SHIFT + 3) | (distance & 7) | (word & ~HEAPTAP_WORD_VALUE);
  scratch->words_read += misfit ? WORDS_READ_LOST : 1;
  scratch->words[index] = distance / 8 << HEAPTAP_WORD_DISTANCE_SHIFT | word;
}

/* Reads and notes a word. Returns 0, or another number if the memory cannot be read. */
static __always_inline int read_word(struct scratch* scratch, __u64 address, __u64* word) {
  if (read_window(scratch, address, word)) {
    int error;
    if (address & 7) {
      error = bpf_probe_read_user(word, sizeof(*word), (const void*)address);
    } else {
      error = move_window(scratch, address) || read_window(scratch, address, word);
    }
    if (error) return error;
  }
  note_word(scratch, address, *word);
  return 0;
}

/* Only RSP and RBP are compared before a stack is found again. */
static __always_inline int read_register(struct scratch* scratch, __u32 number, __u64* word) {
  scratch->words_read += WORDS_READ_LOST;
  *word = scratch->registers[number & 15];
  return 0;
}

/* The step up a stack reads this memory and these registers. */
#define HEAPTAP_UNWIND_READ(context, address, word) read_word(context, address, word)
#define HEAPTAP_UNWIND_REGISTER(context, number, word) read_register(context, number, word)

#include "bpf/unwind_step.h"

#endif /* HEAPTAP_MEMORY_BPF_H_ */
