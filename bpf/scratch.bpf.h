/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Buffers for walking a stack: a walk needs more than the 512 bytes of a program's own stack.
 *
 * Uprobe programs preempt one another, so each CPU has several buffers. A program claims the first free buffer of its
 * CPU and releases it before it ends.
 */
#ifndef HEAPTAP_SCRATCH_BPF_H_
#define HEAPTAP_SCRATCH_BPF_H_

#include "allocator/include/heaptap/contract.h"
#include "bpf/books.h"
#include "bpf/kernel.h"
#include "bpf/unwind.h"

/* When this many programs are in the middle of a walk on one CPU, the next one loses its stack, which is counted. */
#define SCRATCH_SLOTS 8

/* A read of any length costs as much as ten frames. So a walk first reads what it is expected to need
 * (heaptap_process.stack_bytes), and later up to the end of a page: the next page may be unmapped. */
#define PAGE_BYTES 4096
#define WINDOW_BYTES (4 * PAGE_BYTES)

/* The most words that may have decided a walk if the next walk is to find its stack again. A frame has one or two. */
#define WORDS_READ_MAX 512
/* Something else decided the walk too. */
#define WORDS_READ_LOST (1U << 16)
/* In place of the address of an RBP that is to be noted. */
#define RBP_IS_NOTED 0

/* A mapping of code that a walk has passed, and the table of its file. */
struct known_mapping {
  __u64 begin;
  __u64 bytes;     /* 0: none */
  __u64 to_offset; /* add it to an address to get the offset in its file */
  __u64 tag;       /* of the file, for rules */
  struct heaptap_file_key file;
  __u32 has_file;
  __u32 levels; /* of the table; 0: it was not loaded at the last look */
  __u32 table;
  __u32 reserved;
  __u64 base; /* of the table */
};

/* Stacks lead through few files. */
#define KNOWN_MAPPINGS 4

struct scratch {
  __u64 claimed;
  __u64 process_id;
  __u64 salt;                                    /* of the rule cache, for this process and its mappings */
  struct known_mapping mappings[KNOWN_MAPPINGS]; /* valid until the salt changes */
  __u64 next_mapping;                            /* the one to forget next, modulo their number */
  __u32 tgid;
  __u32 rip_bits; /* HEAPTAP_RIP_* of frame.rip */
  struct heaptap_unwind_frame frame;
  __u64 hash;          /* of the frames so far */
  __u64 files;         /* a hash of the files that contain their code */
  __u64 registers[16]; /* of frame 0, by DWARF number */
  __u64 window_begin;  /* address in the process */
  __u64 window_bytes;
  __u64 window[WINDOW_BYTES / 8];
  /* The rule of the frame, for walk_simple_frames(); 0: it looks for the rule itself. */
  __u64 given_rule;
  /* Whether walk_simple_frames() had the rule of the frame where it ended. */
  __u32 had_rule;
  __u32 reserved;
  /* Where frame.rbp was read. Most functions save an RBP that holds data, so the word is noted only if it decides where
   * a frame is. */
  __u64 rbp_at;
  /* The words that decided the walk, from the innermost frame outwards: HEAPTAP_WORD_*, as distances from RSP of
   * frame 0. */
  __u32 words_read;
  __u64 words[WORDS_READ_MAX];
  __u64 stack_id;
  struct heaptap_stack stack;
  __u64 tick; /* of the kernel, at the latest look at the clock */
  __u64 time; /* the clock then, in nanoseconds */
};

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, SCRATCH_SLOTS);
  __type(key, __u32);
  __type(value, struct scratch);
} scratch SEC(".maps");

/* Null: all buffers of this CPU are claimed. */
static __always_inline struct scratch* claim_scratch(void) {
  for (__u32 slot = 0; slot < SCRATCH_SLOTS; slot++) {
    __u32 key = slot;
    struct scratch* buffer = bpf_map_lookup_elem(&scratch, &key);
    if (buffer && __sync_val_compare_and_swap(&buffer->claimed, 0, 1) == 0) return buffer;
  }
  return NULL;
}

/* Begins to use the buffer for a process and a state of its mappings. */
static __always_inline void set_salt(struct scratch* buffer, __u64 salt) {
  if (buffer->salt == salt) return;
  buffer->salt = salt;
#pragma unroll
  for (__u32 i = 0; i < KNOWN_MAPPINGS; i++) buffer->mappings[i].bytes = 0;
}

/* The time, at most one tick of the kernel too early. Reading the clock takes as long as a hash look-up. */
static __always_inline __u64 time_of_tick(struct scratch* buffer) {
  const __u64 tick = bpf_jiffies64();
  if (buffer->tick != tick) {
    buffer->tick = tick;
    buffer->time = bpf_ktime_get_ns();
  }
  return buffer->time;
}

/* A program stays on its CPU, and only programs of this CPU claim the buffer. So the compiler alone must keep the
 * order. */
static __always_inline void release_scratch(struct scratch* buffer) {
  asm volatile("" ::: "memory");
  *(volatile __u64*)&buffer->claimed = 0;
}

#endif /* HEAPTAP_SCRATCH_BPF_H_ */
