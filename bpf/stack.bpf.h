/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * From a probe's registers to the tally of a stack: walk the user stack, keep it once.
 *
 * walk_stack is the only function that knows how a stack is walked. Stacks are interned by a 64-bit hash that is seeded
 * with a secret of this load and with the process id, so no process can make its stacks collide with another's; a new
 * stack is compared frame by frame with what stands under its id all the same. (BPF_MAP_TYPE_STACK_TRACE drops or
 * replaces a stack when two share a bucket.)
 */
#ifndef HEAPTAP_STACK_BPF_H_
#define HEAPTAP_STACK_BPF_H_

#include "bpf/maps.bpf.h"

/* Set by the collector before load, at random. */
const volatile __u64 stack_seed = 0;

/* Uprobe programs can be preempted by one another, so one buffer a CPU is not enough; a program claims the first free
 * one. More than this many programs interrupted in the middle on one CPU lose their stacks, counted. */
#define SCRATCH_SLOTS 8

/* Words of the user's stack that are read at once: most walks need one or two reads, and one costs as much as ten
 * frames. */
#define WINDOW_WORDS 64

struct scratch {
  __u64 claimed;
  struct heaptap_stack stack;
  __u64 window_begin;             /* address in the process */
  __u64 window[WINDOW_WORDS + 1]; /* one more than is filled, so that any word below has a next one */
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

/* x86-64 user space ends here; with five-level page tables a program must ask for more. */
#define USER_ADDRESS_END (1ULL << 47)

/* What a frame pointer points to. */
struct frame_record {
  __u64 caller_frame;
  __u64 return_address;
};

/* Reads the frame record at an aligned address. Returns 0, or a negative errno. */
static __always_inline int read_frame(struct scratch* mine, __u64 frame, struct frame_record* record) {
  __u64 offset = frame - mine->window_begin;
  if (offset > (WINDOW_WORDS - 2) * sizeof(__u64)) {
    if (bpf_probe_read_user(mine->window, WINDOW_WORDS * sizeof(__u64), (const void*)frame))
      /* The window reaches beyond the end of the stack. */
      return bpf_probe_read_user(record, sizeof(*record), (const void*)frame);
    mine->window_begin = frame;
    offset = 0;
  }
  __u32 word = (offset / sizeof(__u64)) & (WINDOW_WORDS - 1);
  record->caller_frame = mine->window[word];
  record->return_address = mine->window[word + 1];
  return 0;
}

/* Fills in mine->stack by following frame pointers.
 *
 * bpf_get_stack does the same, but it follows any value: code without frame pointers and the C library's start-up code
 * (rbp = 1) end each walk with a page fault, which costs as much as the probe. Here the walk ends where the next frame
 * is not above the last one, as frames on a stack are. */
static __always_inline void walk_stack(struct pt_regs* context, struct scratch* mine) {
  struct heaptap_stack* stack = &mine->stack;
  __u64 frame = PT_REGS_FP(context);
  __u64 last = PT_REGS_SP(context) - 1;
  mine->window_begin = USER_ADDRESS_END; /* above all frames: nothing is in the window yet */
  stack->frames[0] = PT_REGS_IP(context);
  __u32 count = 1;
  for (; count < HEAPTAP_MAX_FRAMES; count++) {
    struct frame_record record;
    if (frame <= last || frame >= USER_ADDRESS_END || (frame & 7) != 0) break;
    if (read_frame(mine, frame, &record)) break;
    if (record.return_address == 0 || record.return_address >= USER_ADDRESS_END) break;
    stack->frames[count] = record.return_address;
    last = frame;
    frame = record.caller_frame;
  }
  stack->count = count;
  stack->end = count >= HEAPTAP_MAX_FRAMES ? HEAPTAP_STACK_TRUNCATED
               : count == 1                ? HEAPTAP_STACK_FAILED
                                           : HEAPTAP_STACK_WHOLE;
}

/* A multiplicative hash: the multiplier is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4), the shift brings the
 * well-mixed high bits down before the next frame. */
#define HASH_MULTIPLIER 0x9e3779b97f4a7c15ULL
#define HASH_SHIFT 32

static __always_inline __u64 hash_stack(__u64 process_id, const struct heaptap_stack* stack) {
  __u64 hash = (stack_seed ^ process_id) * HASH_MULTIPLIER + stack->end;
  for (__u32 i = 0; i < HEAPTAP_MAX_FRAMES; i++) {
    if (i >= stack->count) break;
    hash ^= hash >> HASH_SHIFT;
    hash = (hash ^ stack->frames[i]) * HASH_MULTIPLIER;
  }
  hash ^= hash >> HASH_SHIFT;
  return hash == HEAPTAP_NO_STACK ? 1 : hash;
}

static __noinline int same_stack(const struct heaptap_stack* a, const struct heaptap_stack* b) {
  if (a->count != b->count || a->end != b->end) return 0;
  for (__u32 i = 0; i < HEAPTAP_MAX_FRAMES; i++) {
    if (i >= a->count) break;
    if (a->frames[i] != b->frames[i]) return 0;
  }
  return 1;
}

/* Keeps the stack under `id`. Returns 0, or the HEAPTAP_LOSS_* reason, negative. */
static __noinline int keep_stack(__u64 id, const struct heaptap_stack* stack) {
  bpf_map_update_elem(&stacks, &id, stack, BPF_NOEXIST);
  /* Ours, or that of another thread that was faster, or there was no room. */
  struct heaptap_stack* kept = bpf_map_lookup_elem(&stacks, &id);
  if (!kept) return -HEAPTAP_LOSS_STACKS_FULL;
  return same_stack(kept, stack) ? 0 : -HEAPTAP_LOSS_STACK_COLLISION;
}

static __always_inline struct heaptap_tally* make_tally(const struct heaptap_tally_key* key) {
  struct heaptap_tally none = {};
  bpf_map_update_elem(&tallies, key, &none, BPF_NOEXIST);
  return bpf_map_lookup_elem(&tallies, key);
}

/* The tally for the stack that the program was called on; fills in key->stack_id. A tally that is there already says
 * that its stack is kept: only the thread in its key makes it, or takes it back if there is no room for the stack. The
 * tally comes first, so that whoever deletes a process's books finds every stack by its tally. Null: no room for the
 * tally. A stack that cannot be kept counts as HEAPTAP_NO_STACK. */
static __always_inline struct heaptap_tally* find_tally(struct pt_regs* context, struct heaptap_tally_key* key,
                                                        __u64 weight) {
  int loss = -HEAPTAP_LOSS_SCRATCH_BUSY;
  struct heaptap_tally* tally = NULL;
  struct scratch* mine = claim_scratch();
  if (mine) {
    walk_stack(context, mine);
    key->stack_id = hash_stack(key->process_id, &mine->stack);
    tally = bpf_map_lookup_elem(&tallies, key);
    loss = 0;
    if (!tally) {
      tally = make_tally(key);
      if (tally) loss = keep_stack(key->stack_id, &mine->stack);
    }
    release_scratch(mine);
  }
  if (!loss) return tally;
  lose(key->process_id, -loss, weight);
  if (tally) bpf_map_delete_elem(&tallies, key);
  key->stack_id = HEAPTAP_NO_STACK;
  return make_tally(key);
}

#endif /* HEAPTAP_STACK_BPF_H_ */
