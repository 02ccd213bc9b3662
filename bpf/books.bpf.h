/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Double entry: a sample is counted in `tallies` when it enters `live`, and again when it leaves.
 *
 * An entry of `live` belongs to the program that changed its serial number by compare-and-swap: from an object's number
 * to HEAPTAP_LIVE_NONE (the object is freed), or from HEAPTAP_LIVE_NONE to HEAPTAP_LIVE_CLAIMED (a sweep deletes the
 * entry, or the program on the allocating thread fills it in).
 *
 * A function that may lose a sample returns an enum heaptap_loss_reason; its caller counts the loss.
 */
#ifndef HEAPTAP_BOOKS_BPF_H_
#define HEAPTAP_BOOKS_BPF_H_

#include "bpf/figures.bpf.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/order.bpf.h"

/* Fixed point. Where every allocation is a sample, weight == size, and the division is avoided. */
static __always_inline __u64 weighted_objects(__u64 size, __u64 weight) {
  return weight == size ? 1ULL << HEAPTAP_OBJECT_FRACTION_BITS : (weight << HEAPTAP_OBJECT_FRACTION_BITS) / size;
}

/* Not atomic: only the allocating thread writes this half of its tally. Not for tallies of heaps. */
static __always_inline void count_allocated(struct heaptap_count* count, __u64 size, __u64 weight) {
  count->objects += 1;
  count->bytes += size;
  count->weight += weight;
  count->weighted_objects += weighted_objects(size, weight);
  count->variance += heaptap_variance(size, weight);
}

/* Atomic: any thread may free, and any may allocate in a heap. The objects come last: when as many are freed as were
 * allocated, fold() takes the tally for finished and deletes it. */
static __always_inline void count_shared(struct heaptap_count* count, __u64 size, __u64 weight) {
  add(&count->bytes, size);
  add(&count->weight, weight);
  add(&count->weighted_objects, weighted_objects(size, weight));
  add(&count->variance, heaptap_variance(size, weight));
  add(&count->objects, 1);
}

/* `more`: may be -1. */
static __always_inline void count_tallies(struct heaptap_process* process, __u64 process_id, __u64 more) {
  __u64* all = counter(HEAPTAP_COUNTER_TALLIES);
  if (all) add(all, more);
  if (has_figures_of(process, process_id)) add(&process->figures.tallies, more);
}

/* The kernel refills its reserve of memory for new entries in an interrupt, and a sweep deletes an entry right after
 * claiming it. This many tries last longer than both. */
#define PATIENT_TRIES 1000

struct new_tally {
  struct heaptap_tally_key key;
  struct heaptap_tally tally;
  long error;
};

static long try_to_add_tally(__u32 index, struct new_tally* entry) {
  entry->error = bpf_map_update_elem(&tallies, &entry->key, &entry->tally, BPF_NOEXIST);
  return entry->error != -ENOMEM;
}

/* Makes the tally, unless there is one. If that is impossible, says why. */
__noinline enum heaptap_loss_reason enter_tally(struct heaptap_process* process, const struct heaptap_tally_key* key) {
  if (!process || !key) return HEAPTAP_LOSS_TALLIES_FULL; /* never */
  const struct heaptap_settings* defaults = read_settings();
  if (share_exhausted(process, process->figures.tallies, process->limits.max_tallies,
                      defaults ? defaults->tallies_room : 0, HEAPTAP_COUNTER_TALLIES) != SHARE_LEFT)
    return HEAPTAP_LOSS_TALLIES_SHARE;
  struct new_tally entry = {.key = *key, .error = -ENOMEM};
  bpf_loop(PATIENT_TRIES, try_to_add_tally, &entry, 0);
  if (entry.error == 0) count_tallies(process, key->process_id, 1);
  return entry.error == 0 || entry.error == -EEXIST ? HEAPTAP_NO_LOSS : HEAPTAP_LOSS_TALLIES_FULL;
}

/* Finds the tally, or makes it. Null if there is no room, and the loss says why. */
static __always_inline enum heaptap_loss_reason make_tally(struct heaptap_process* process,
                                                           const struct heaptap_tally_key* key,
                                                           struct heaptap_tally** tally) {
  const enum heaptap_loss_reason loss = enter_tally(process, key);
  *tally = bpf_map_lookup_elem(&tallies, key);
  if (*tally) return HEAPTAP_NO_LOSS;
  return loss == HEAPTAP_NO_LOSS ? HEAPTAP_LOSS_TALLIES_FULL : loss;
}

/* Whether this can be the serial number of an object. */
static __always_inline int is_serial(__u64 serial) {
  return serial != HEAPTAP_LIVE_NONE && serial != HEAPTAP_LIVE_CLAIMED;
}

/* Takes the object with this serial number out of the books and adds it to `removed`. Returns 0, or 1 if it is not in
 * `entry`, or another program was faster. `next`: the new serial number of the entry, HEAPTAP_LIVE_NONE or
 * HEAPTAP_LIVE_CLAIMED. `*tally`: the tally of the object, or null. REQUIRES: is_serial(serial). */
static __always_inline int remove_live(__u64 process_id, struct heaptap_live* entry, __u64 serial, __u64 next,
                                       struct removed* removed, struct heaptap_tally** tally) {
  *tally = NULL;
  /* Acquire: pairs with fill_in. */
  if (load_acquire(&entry->serial) != serial) return 1;
  /* Read before the entry is released: afterwards a sweep may delete the entry, and the map may reuse its memory at
   * once. */
  __u64 size = entry->size;
  __u64 weight = entry->weight;
  struct heaptap_tally_key key = {.process_id = process_id, .stack_id = entry->stack_id, .tid = entry->tid};
  asm volatile("" ::: "memory");
  if (__sync_val_compare_and_swap(&entry->serial, serial, next) != serial) return 1;
  *tally = bpf_map_lookup_elem(&tallies, &key);
  if (*tally) count_shared(&(*tally)->freed, size, weight);
  removed->objects += 1;
  removed->weight += weight;
  return 0;
}

/* Counts `more` new entries. Asks for a sweep if the map is filling up, or if `found_no_room` is set. */
static __always_inline void count_live_entries(__u64 process_id, __u64 more, int found_no_room) {
  __u64* entries = counter(HEAPTAP_COUNTER_LIVE_ENTRIES);
  __u64* sweep_at = counter(HEAPTAP_COUNTER_SWEEP_AT);
  if (!entries || !sweep_at) return;
  __u64 now = __sync_fetch_and_add(entries, more) + more;
  __u64 at = *sweep_at;
  /* Signed: a sweep may subtract an entry before the program that made the entry has added it. */
  int is_filling = (__s64)now >= (__s64)at || found_no_room;
  if (at == ~0ULL || !is_filling || __sync_val_compare_and_swap(sweep_at, at, ~0ULL) != at) return;
  /* Without room for the event, the next sample asks again. */
  const __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  if (send_event(HEAPTAP_EVENT_LIVE_FILLING, tgid, process_id, now)) *sweep_at = at;
}

struct new_entry {
  struct heaptap_live_key key;
  struct heaptap_live object;
  long error;
};

static long try_to_insert(__u32 index, struct new_entry* entry) {
  entry->error = bpf_map_update_elem(&live, &entry->key, &entry->object, BPF_NOEXIST);
  return entry->error != -EEXIST && entry->error != -ENOMEM;
}

/* What a program has found while it removed an object, and can use for its own sample. Null: nothing. */
struct reuse {
  struct heaptap_live* entry; /* claimed, for the address of the sample */
  struct heaptap_tally* tally;
};

/* Fills in a claimed entry. Release: a program that reads the serial number reads the whole object. */
static __always_inline void fill_in(struct heaptap_live* entry, const struct heaptap_live* object) {
  entry->size = object->size;
  entry->weight = object->weight;
  entry->stack_id = object->stack_id;
  entry->time = object->time;
  entry->tid = object->tid;
  entry->record = object->record;
  store_release(&entry->serial, object->serial);
}

/* Enters an object that is in no claimed entry. On a loss the object is not in the books. `is_numbered`: the process
 * numbers its samples, so an object that is still at the address was freed, and the process will say so later.
 * `removed`: what this program has removed, and what the function removes. */
__noinline enum heaptap_loss_reason insert_live(struct heaptap_process* process, const struct heaptap_live_key* key,
                                                const struct heaptap_live* object, int is_numbered,
                                                struct removed* removed) {
  if (!process || !key || !object || !removed) return HEAPTAP_LOSS_LIVE_FULL; /* never */
  const struct heaptap_settings* defaults = read_settings();
  enum share_state share =
      share_exhausted(process, process->figures.live_objects - removed->objects, process->limits.max_live,
                      defaults ? defaults->live_room : 0, HEAPTAP_COUNTER_LIVE_ENTRIES);
  if (share != SHARE_LEFT) {
    /* Entries of freed objects count as taken until a sweep. */
    if (share == SHARE_ROOM) count_live_entries(key->process_id, 0, 1);
    return HEAPTAP_LOSS_LIVE_SHARE;
  }
  struct new_entry entered = {.key = *key, .object = *object};
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, &entered.key);
  __u64 earlier = entry ? entry->serial : HEAPTAP_LIVE_NONE;
  struct heaptap_tally* tally;
  if (entry && is_serial(earlier) &&
      remove_live(key->process_id, entry, earlier, HEAPTAP_LIVE_NONE, removed, &tally) == 0 && !is_numbered)
    count_loss(key->process_id, HEAPTAP_LOSS_MISSED_FREE, object->weight);
  /* Claimed before it is written: a sweep may delete the entry otherwise, and the map would reuse it at once. */
  if (!entry ||
      __sync_val_compare_and_swap(&entry->serial, HEAPTAP_LIVE_NONE, HEAPTAP_LIVE_CLAIMED) != HEAPTAP_LIVE_NONE) {
    /* Tried until a sweep has deleted the entry that is in the way, or the kernel has memory again. */
    bpf_loop(PATIENT_TRIES, try_to_insert, &entered, 0);
    const long error = entered.error;
    /* Called even if the map is full: a sweep may find objects freed since the last one. */
    count_live_entries(key->process_id, error ? 0 : 1, 0);
    return error ? HEAPTAP_LOSS_LIVE_FULL : HEAPTAP_NO_LOSS;
  }
  fill_in(entry, object);
  return HEAPTAP_NO_LOSS;
}

#endif /* HEAPTAP_BOOKS_BPF_H_ */
