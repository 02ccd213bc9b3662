/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * From a probe's registers to the tally of a stack: walk the user stack, keep it once.
 *
 * Stacks are interned by a 64-bit hash that is seeded
 * with a secret of this load and with the process id, so no process can make its stacks collide with another's; a new
 * stack is compared frame by frame with what stands under its id all the same. (BPF_MAP_TYPE_STACK_TRACE drops or
 * replaces a stack when two share a bucket.)
 */
#ifndef HEAPTAP_STACK_BPF_H_
#define HEAPTAP_STACK_BPF_H_

#include "bpf/books.bpf.h"
#include "bpf/maps.bpf.h"
#include "bpf/raw_stack.bpf.h"
#include "bpf/walk.bpf.h"

/* Set by the collector before load, at random. */
const volatile __u64 stack_seed = 0;

/* `unique`: stacks that are the same but for this get different ids. */
static __always_inline __u64 finish_hash(__u64 hash, __u32 end, __u64 unique) {
  hash = hash_word(hash_word(hash, end), unique);
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

static __always_inline void count_tallies(struct heaptap_process* process, __u64 process_id, __u64 more) {
  __u64* all = counter(HEAPTAP_COUNTER_TALLIES);
  if (all) add(all, more);
  if (has_figures_of(process, process_id)) add(&process->tallies, more);
}

/* Null: no room; `*loss` says why, negative. */
static __always_inline struct heaptap_tally* make_tally(struct heaptap_process* process,
                                                        const struct heaptap_tally_key* key, int* loss) {
  const struct heaptap_settings* of_all = read_settings();
  if (has_share(process, process->tallies, process->max_tallies, of_all ? of_all->tallies_room : 0,
                HEAPTAP_COUNTER_TALLIES)) {
    *loss = -HEAPTAP_LOSS_TALLIES_SHARE;
    return NULL;
  }
  struct heaptap_tally none = {};
  if (bpf_map_update_elem(&tallies, key, &none, BPF_NOEXIST) == 0) count_tallies(process, key->process_id, 1);
  struct heaptap_tally* tally = bpf_map_lookup_elem(&tallies, key);
  if (!tally) *loss = -HEAPTAP_LOSS_TALLIES_FULL;
  return tally;
}

/* The stack that the program was called on. Returns its id. `process_id`: of the books that it is for; those in
 * `process` may be new ones by now. */
static __always_inline __u64 take_stack(struct pt_regs* context, struct heaptap_process* process, __u32 tgid,
                                        __u64 process_id, struct scratch* mine) {
  mine->process_id = process_id;
  mine->tgid = tgid;
  mine->salt = make_salt(process, stack_seed);
  mine->hash = (stack_seed ^ process_id) * HASH_MULTIPLIER;
  walk_stack(context, mine);
  __u64 unique = 0;
  if (mine->stack.end == HEAPTAP_STACK_UNFINISHED) {
    __u64* sent = counter(HEAPTAP_COUNTER_RAW_STACKS);
    if (sent && has_room_for_raw_stack()) {
      unique = __sync_fetch_and_add(sent, 1) + 1;
      take_registers(mine);
    } else {
      mine->stack.end = HEAPTAP_STACK_NO_ROOM;
    }
  }
  return finish_hash(mine->hash, mine->stack.end, unique);
}

/* Keeps a new stack. Returns 0, or the HEAPTAP_LOSS_* reason, negative. */
static __always_inline int keep_new_stack(__u64 id, const struct scratch* mine) {
  int loss = keep_stack(id, &mine->stack);
  if (loss || mine->stack.end != HEAPTAP_STACK_UNFINISHED) return loss;
  if (send_raw_stack(mine, id)) {
    struct heaptap_stack* kept = bpf_map_lookup_elem(&stacks, &id);
    if (kept) kept->end = HEAPTAP_STACK_NO_ROOM;
  }
  return 0;
}

/* The tally for the stack that the program was called on; fills in key->stack_id. A tally that is there already says
 * that its stack is kept: only the thread in its key makes it, or takes it back if there is no room for the stack. The
 * tally comes first, so that whoever deletes a process's books finds every stack by its tally. Null: no room for the
 * tally; `*no_tally` says why, negative. A stack that cannot be kept counts as HEAPTAP_NO_STACK, and `*no_stack` says
 * why, negative; else it is 0. */
static __always_inline struct heaptap_tally* find_tally(struct pt_regs* context, struct heaptap_process* process,
                                                        __u32 tgid, struct heaptap_tally_key* key, int* no_stack,
                                                        int* no_tally) {
  int loss = -HEAPTAP_LOSS_SCRATCH_BUSY;
  struct heaptap_tally* tally = NULL;
  struct scratch* mine = claim_scratch();
  if (mine) {
    key->stack_id = take_stack(context, process, tgid, key->process_id, mine);
    tally = bpf_map_lookup_elem(&tallies, key);
    loss = 0;
    if (!tally) {
      tally = make_tally(process, key, no_tally);
      if (tally) loss = keep_new_stack(key->stack_id, mine);
    }
    release_scratch(mine);
  }
  *no_stack = loss;
  if (!loss) return tally;
  if (tally && bpf_map_delete_elem(&tallies, key) == 0) count_tallies(process, key->process_id, -1ULL);
  key->stack_id = HEAPTAP_NO_STACK;
  return make_tally(process, key, no_tally);
}

#endif /* HEAPTAP_STACK_BPF_H_ */
