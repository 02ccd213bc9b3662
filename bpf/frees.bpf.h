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

/* Not found: sampled before the recording or a fork, taken already, or a loss that was counted at the allocation. A
 * free that is taken again does not count again. */
static __always_inline void take_free(struct heaptap_process* process, __u64 process_id,
                                      const struct heaptap_free* freed) {
  struct heaptap_live_key key = {.process_id = process_id, .address = freed->address};
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, &key);
  if (!entry || !is_serial(freed->serial) || remove_live(process, process_id, entry, freed->serial)) return;
  if (has_figures(process)) add(&process->costs.frees, 1);
}

struct frees {
  struct heaptap_process* process;
  __u64 process_id;
  const struct heaptap_free* next;
};

static long take_next_free(__u32 index, struct frees* frees) {
  struct heaptap_free freed;
  if (bpf_probe_read_user(&freed, sizeof(freed), frees->next++)) return 1;
  take_free(frees->process, frees->process_id, &freed);
  return 0;
}

static __always_inline void take_frees_of(struct heaptap_process* process, __u64 begin, __u64 count) {
  if (count > HEAPTAP_SLOT_FREES) count = HEAPTAP_SLOT_FREES;
  /* The kernel's code for bpf_loop() reads all 64 bits of the register, but the compiler knows of 32. */
  asm volatile("" : "+r"(count));
  struct frees frees = {process, process->identity.id, (const struct heaptap_free*)begin};
  bpf_loop(count, take_next_free, &frees, 0);
}

/* Takes the frees that a probe passes on, and notes where the process keeps those of its other threads. `first`: the
 * first of them, or null. */
static __always_inline void take_frees_at(struct heaptap_process* process, __u64 begin, __u64 where,
                                          const struct heaptap_free* first) {
  __u64 slot = where >> 32;
  __u64 pending = slot == 0 ? 0
                            : begin - offsetof(struct heaptap_slot, frees) - (slot - 1) * sizeof(struct heaptap_slot) -
                                  offsetof(struct heaptap_pending, slots);
  if (begin == 0) {
    process->pending = 0;
  } else if (slot != 0 && process->pending != pending) {
    process->pending = pending;
  }
  __u64 count = where & ~(__u32)0;
  if (first && count != 0) {
    take_free(process, process->identity.id, first);
    begin += sizeof(*first);
    count--;
  }
  if (count != 0) take_frees_of(process, begin, count);
}

static long take_slot(__u32 index, struct frees* frees) {
  const struct heaptap_slot* slot = (const struct heaptap_slot*)frees->next + index;
  __u32 count = 0;
  /* Memory that was never written is not there yet, and cannot be read. */
  if (bpf_probe_read_user(&count, sizeof(count), &slot->count)) return 0;
  if (count != 0) take_frees_of(frees->process, (__u64)slot->frees, count);
  return 0;
}

/* Takes all that the calling process holds back. Returns 0, or an error if its memory cannot be read. */
static __noinline int take_all_frees(struct heaptap_process* process) {
  if (!process) return -1; /* never */
  __u64 pending = process->pending;
  if (pending == 0) return 0;
  __u64 used = 0;
  int error = bpf_probe_read_user(&used, sizeof(used), (const void*)pending);
  if (error) return error;
  if (used > HEAPTAP_SLOTS) used = HEAPTAP_SLOTS;
  struct frees slots = {process, 0, (const struct heaptap_free*)(pending + offsetof(struct heaptap_pending, slots))};
  bpf_loop(used, take_slot, &slots, 0);
  return 0;
}

#endif /* HEAPTAP_FREES_BPF_H_ */
