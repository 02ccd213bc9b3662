/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * From a probe's registers to the tally of a stack: walks the user stack and keeps each stack once.
 *
 * The id of a stack is a 64-bit hash, seeded with a secret of this load and with the process id, so that no process can
 * make its stacks collide with the stacks of another. Stacks of equal addresses in different files have different ids,
 * except deep ones. A new stack is still compared frame by frame with the stack that its id has in the map.
 * (BPF_MAP_TYPE_STACK_TRACE drops or replaces a stack when two share a bucket.)
 */
#ifndef HEAPTAP_STACK_BPF_H_
#define HEAPTAP_STACK_BPF_H_

#include "bpf/books.bpf.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/raw_stack.bpf.h"
#include "bpf/walk.bpf.h"

/* `unique`: a number that gives equal stacks different ids; 0 for none. */
static __always_inline __u64 finish_hash(__u64 hash, __u64 files, __u32 end, __u64 unique) {
  hash = hash_word(hash_word(hash_word(hash, files), end), unique);
  hash ^= hash >> HASH_SHIFT;
  return hash == HEAPTAP_NO_STACK ? 1 : hash;
}

__noinline int same_stack(const struct heaptap_stack* a, const struct heaptap_stack* b) {
  if (!a || !b) return 0; /* never */
  if (a->count != b->count || a->end != b->end) return 0;
  for (__u32 i = 0; i < HEAPTAP_MAX_FRAMES; i++) {
    if (i >= a->count) break;
    if (a->frames[i] != b->frames[i]) return 0;
  }
  return 1;
}

struct new_stack {
  __u64 id;
  const struct heaptap_stack* stack;
};

static long try_to_add_stack(__u32 index, struct new_stack* entry) {
  if (!entry->stack) return 1; /* never */
  return bpf_map_update_elem(&stacks, &entry->id, entry->stack, BPF_NOEXIST) != -ENOMEM;
}

static __noinline enum heaptap_loss_reason keep_stack(__u64 id, const struct heaptap_stack* stack) {
  struct new_stack entry = {.id = id, .stack = stack};
  /* Tried again as long as the kernel's reserve of memory is empty. */
  bpf_loop(PATIENT_TRIES, try_to_add_stack, &entry, 0);
  /* This stack, or one that another thread entered first; null if there was no room. */
  struct heaptap_stack* kept = bpf_map_lookup_elem(&stacks, &id);
  if (!kept) return HEAPTAP_LOSS_STACKS_FULL;
  return same_stack(kept, stack) ? HEAPTAP_NO_LOSS : HEAPTAP_LOSS_STACK_COLLISION;
}

/* Walks the stack that the program was called on. `process_id`: the books that the stack is for; `process` may have new
 * books by now. Returns a claimed buffer with the stack and its id, or null if there is no buffer. */
static __always_inline struct scratch* take_stack(struct pt_regs* context, struct heaptap_process* process, __u32 tgid,
                                                  __u64 process_id) {
  struct scratch* scratch = claim_scratch();
  if (!scratch) return NULL;
  const __u64 salt = make_salt(process, stack_seed);
  const int is_here = scratch->process_id == process_id && scratch->salt == salt && began_here(scratch, context);
  scratch->frame.rsp = PT_REGS_SP(context);
  begin_window(scratch, process->stack_bytes);
  if (is_here && would_read_the_same(scratch)) return scratch;
  scratch->process_id = process_id;
  scratch->tgid = tgid;
  set_salt(scratch, salt);
  scratch->hash = first_hash(process_id);
  walk_stack(context, process, scratch);
  __u64 unique = 0;
  if (scratch->stack.end == HEAPTAP_STACK_UNFINISHED) {
    __u64* sent = counter(HEAPTAP_COUNTER_RAW_STACKS);
    if (sent && has_room_for_raw_stack()) {
      unique = __sync_fetch_and_add(sent, 1) + 1;
      take_registers(scratch);
    } else {
      scratch->stack.end = HEAPTAP_STACK_NO_ROOM;
    }
  }
  scratch->stack_id = finish_hash(scratch->hash, scratch->files, scratch->stack.end, unique);
  return scratch;
}

/* Keeps a new stack, and sends its copy to the collector if the walk is unfinished. */
static __always_inline enum heaptap_loss_reason keep_new_stack(__u64 id, struct scratch* scratch) {
  scratch->stack.time = tells_mappings() ? bpf_ktime_get_ns() : 0;
  enum heaptap_loss_reason loss = keep_stack(id, &scratch->stack);
  if (loss != HEAPTAP_NO_LOSS || scratch->stack.end != HEAPTAP_STACK_UNFINISHED) return loss;
  if (send_raw_stack(scratch, id)) {
    struct heaptap_stack* kept = bpf_map_lookup_elem(&stacks, &id);
    if (kept) kept->end = HEAPTAP_STACK_NO_ROOM;
  }
  return HEAPTAP_NO_LOSS;
}

/* The tally of a stack. If the stack could not be kept, it is the tally of HEAPTAP_NO_STACK. */
struct found_tally {
  struct heaptap_tally* tally;         /* null: there is no room for it */
  enum heaptap_loss_reason loss;       /* why not */
  enum heaptap_loss_reason stack_loss; /* why the stack could not be kept */
};

/* Finds or makes the tally of the stack in `scratch`, which take_stack() returned, and fills in key->stack_id. Releases
 * the buffer. `reuse->tally`: null, or that tally.
 *
 * If a tally exists, its stack is kept: only the thread in the key makes the tally, and that thread deletes it again if
 * there is no room for the stack. The tally is made before the stack, so that every stack of a process can be found by
 * its tallies when the books are deleted. The tally of a heap has no such thread, so it stays, and its stack is checked
 * each time. */
static __always_inline struct found_tally find_tally(struct heaptap_process* process, struct scratch* scratch,
                                                     const struct reuse* reuse, struct heaptap_tally_key* key) {
  struct found_tally found = {.tally = NULL, .loss = HEAPTAP_NO_LOSS, .stack_loss = HEAPTAP_LOSS_SCRATCH_BUSY};
  const int is_of_heap = (key->tid & HEAPTAP_HEAP_TID) != 0;
  if (scratch) {
    key->stack_id = scratch->stack_id;
    found.tally = reuse->tally;
    if (!found.tally) found.tally = bpf_map_lookup_elem(&tallies, key);
    found.stack_loss = HEAPTAP_NO_LOSS;
    const int is_new = !found.tally;
    if (is_new) found.loss = make_tally(process, key, &found.tally);
    if (found.tally && (is_new || is_of_heap)) found.stack_loss = keep_new_stack(key->stack_id, scratch);
    release_scratch(scratch);
  }
  if (found.stack_loss == HEAPTAP_NO_LOSS) return found;
  if (found.tally && !is_of_heap && bpf_map_delete_elem(&tallies, key) == 0)
    count_tallies(process, key->process_id, -1ULL);
  key->stack_id = HEAPTAP_NO_STACK;
  found.loss = make_tally(process, key, &found.tally);
  return found;
}

#endif /* HEAPTAP_STACK_BPF_H_ */
