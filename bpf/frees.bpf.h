/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Frees that the threads of a process have held back (allocator/include/heaptap/contract.h, heaptap:frees).
 *
 * What the process says is trusted for its own books only: where its frees are, how many, and what they free.
 */
#ifndef HEAPTAP_FREES_BPF_H_
#define HEAPTAP_FREES_BPF_H_

#include "allocator/include/heaptap/contract.h"
#include "bpf/books.bpf.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"

/* An object is not found if it was sampled before the recording or a fork, if its free was taken already, or if it is a
 * loss that was counted at the allocation. A free that is taken again does not count again. */
static __always_inline void take_free(__u64 process_id, const struct heaptap_free* freed, struct removed* removed) {
  struct heaptap_live_key key = {.process_id = process_id, .address = freed->address};
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, &key);
  struct heaptap_tally* tally;
  if (entry && is_serial(freed->serial))
    remove_live(process_id, entry, freed->serial, HEAPTAP_LIVE_NONE, removed, &tally);
  hide_from_verifier(removed, freed->address);
}

/* Like take_free, for a free that comes with a sample of the same thread, at `address` and with a stack. If both are at
 * the same address, as is common where every allocation is a sample, the entry is claimed for the sample; if both have
 * the same stack, the sample may use the tally. `freed`, `serial`: the address and the serial number of the free. */
static __always_inline void take_first_free(__u64 process_id, __u64 freed, __u64 serial, __u64 address, __u64 stack_id,
                                            __u32 tid, struct removed* removed, struct reuse* reuse) {
  struct heaptap_live_key key = {.process_id = process_id, .address = freed};
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, &key);
  if (entry && is_serial(serial)) {
    /* Read before the entry is released. */
    const int has_same_stack = entry->stack_id == stack_id && entry->tid == tid;
    struct heaptap_tally* tally;
    if (remove_live(process_id, entry, serial, freed == address ? HEAPTAP_LIVE_CLAIMED : HEAPTAP_LIVE_NONE, removed,
                    &tally) == 0) {
      if (freed == address) reuse->entry = entry;
      if (has_same_stack) reuse->tally = tally;
    }
  }
  hide_from_verifier(removed, freed);
}

struct frees {
  __u64 process_id;
  const struct heaptap_free* next;
  struct removed removed;
};

static long take_next_free(__u32 index, struct frees* frees) {
  struct heaptap_free freed;
  if (bpf_probe_read_user(&freed, sizeof(freed), frees->next++)) return 1;
  take_free(frees->process_id, &freed, &frees->removed);
  return 0;
}

/* Takes `count` frees at `begin` and adds them to `removed`. */
__noinline int take_frees_of(__u64 process_id, __u64 begin, __u64 count, struct removed* removed) {
  if (!removed) return 0; /* never */
  if (count > HEAPTAP_SLOT_FREES) count = HEAPTAP_SLOT_FREES;
  /* The kernel's code for bpf_loop() reads all 64 bits of the register, but the compiler knows of 32. */
  asm volatile("" : "+r"(count));
  struct frees frees = {process_id, (const struct heaptap_free*)begin, *removed};
  bpf_loop(count, take_next_free, &frees, 0);
  *removed = frees.removed;
  return 0;
}

/* Notes where the process keeps the frees of its threads, from the address and the slot of one thread's frees. Returns
 * the number of that thread's frees. */
static __always_inline __u64 note_frees(struct heaptap_process* process, __u64 begin, __u64 where) {
  __u64 slot = HEAPTAP_WHERE_SLOT(where);
  __u64 pending = slot == 0 ? 0
                            : begin - offsetof(struct heaptap_slot, frees) - (slot - 1) * sizeof(struct heaptap_slot) -
                                  offsetof(struct heaptap_pending, slots);
  if (begin == 0) {
    process->pending = 0;
  } else if (slot != 0 && process->pending != pending) {
    process->pending = pending;
  }
  return where & ~(__u32)0;
}

static long take_slot(__u32 index, struct frees* frees) {
  const struct heaptap_slot* slot = (const struct heaptap_slot*)frees->next + index;
  __u32 count = 0;
  /* Memory that was never written is not there yet, and cannot be read. */
  if (bpf_probe_read_user(&count, sizeof(count), &slot->count)) return 0;
  if (count != 0) take_frees_of(frees->process_id, (__u64)slot->frees, count, &frees->removed);
  return 0;
}

/* Takes all frees that the calling process holds back. Returns 0, or an error if its memory cannot be read. */
static __noinline int take_all_frees(struct heaptap_process* process) {
  if (!process) return -1; /* never */
  __u64 pending = process->pending;
  if (pending == 0) return 0;
  __u64 used = 0;
  int error = bpf_probe_read_user(&used, sizeof(used), (const void*)pending);
  if (error) return error;
  if (used > HEAPTAP_SLOTS) used = HEAPTAP_SLOTS;
  struct frees slots = {.process_id = process->identity.id,
                        .next = (const struct heaptap_free*)(pending + offsetof(struct heaptap_pending, slots))};
  bpf_loop(used, take_slot, &slots, 0);
  count_removed(process, slots.process_id, &slots.removed);
  return 0;
}

#endif /* HEAPTAP_FREES_BPF_H_ */
