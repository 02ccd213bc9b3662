/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Where a stack is walked: too much for the 512 bytes that a program has.
 *
 * Uprobe programs can be preempted by one another, so one buffer a CPU is not enough; a program claims the first free
 * one, and releases it before it ends.
 */
#ifndef HEAPTAP_SCRATCH_BPF_H_
#define HEAPTAP_SCRATCH_BPF_H_

#include "bpf/books.h"
#include "bpf/unwind.h"

/* More than this many programs interrupted in the middle on one CPU lose their stacks, counted. */
#define SCRATCH_SLOTS 8

/* User memory is read a page at a time, to its end: a read costs as much as ten frames, however short, and the next
 * page may not be there. */
#define WINDOW_BYTES 4096

struct scratch {
  __u64 claimed;
  __u64 process_id;
  __u64 salt; /* of the rule cache, for this process and its mappings */
  __u32 tgid;
  __u32 is_return; /* frame.rip is a return address */
  struct heaptap_unwind_frame frame;
  __u64 hash;          /* of the frames so far */
  __u64 registers[16]; /* of frame 0, by DWARF number */
  __u64 window_begin;  /* address in the process */
  __u64 window_bytes;
  __u64 window[WINDOW_BYTES / 8];
  struct heaptap_stack stack;
};

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, SCRATCH_SLOTS);
  __type(key, __u32);
  __type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch* claim_scratch(void) {
  for (__u32 slot = 0; slot < SCRATCH_SLOTS; slot++) {
    __u32 key = slot;
    struct scratch* mine = bpf_map_lookup_elem(&scratch, &key);
    if (mine && __sync_val_compare_and_swap(&mine->claimed, 0, 1) == 0) return mine;
  }
  return NULL;
}

static __always_inline void release_scratch(struct scratch* mine) { __sync_lock_test_and_set(&mine->claimed, 0); }

#endif /* HEAPTAP_SCRATCH_BPF_H_ */
