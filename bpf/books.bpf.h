/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Double entry: every sample that enters `live` enters `tallies`, every one that leaves leaves both.
 *
 * An entry of `live` belongs to whoever changes its size by compare-and-swap: from an object's size to 0 (freed), from
 * 0 to HEAPTAP_LIVE_CLAIMED (to be deleted by a sweep, or filled in by the program on the allocating thread).
 */
#ifndef HEAPTAP_BOOKS_BPF_H_
#define HEAPTAP_BOOKS_BPF_H_

#include "bpf/maps.bpf.h"

/* Each allocation recorded: no division. */
static __always_inline __u64 weighted_objects(__u64 size, __u64 weight) {
  return weight == size ? 1ULL << HEAPTAP_OBJECT_FRACTION_BITS : (weight << HEAPTAP_OBJECT_FRACTION_BITS) / size;
}

/* Only the allocating thread writes this half of its tally, so nothing is atomic. */
static __always_inline void count_allocated(struct heaptap_count* count, __u64 size, __u64 weight) {
  count->objects += 1;
  count->bytes += size;
  count->weight += weight;
  count->weighted_objects += weighted_objects(size, weight);
}

/* Any thread may free. */
static __always_inline void count_freed(struct heaptap_count* count, __u64 size, __u64 weight) {
  add(&count->objects, 1);
  add(&count->bytes, size);
  add(&count->weight, weight);
  add(&count->weighted_objects, weighted_objects(size, weight));
}

static __always_inline int has_figures(const struct heaptap_process* process) {
  return (process->flags & HEAPTAP_PROCESS_FIGURES) != 0;
}

/* Whether these figures are those of `process_id`: a reset may have begun new ones since the program read the id. */
static __always_inline int has_figures_of(const struct heaptap_process* process, __u64 process_id) {
  return has_figures(process) && *(const volatile __u64*)&process->id == process_id;
}

/* Whether this is a control block whose fields lie where the programs write them. */
static __always_inline int is_control_block(const struct heaptap_control* control) {
  return control->magic == HEAPTAP_CONTROL_MAGIC && control->version == HEAPTAP_CONTROL_VERSION &&
         control->size >= sizeof(*control);
}

/* Takes the object in `entry` out of the books. Returns 0, or 1 if there is none (or another program was faster). */
static __always_inline int remove_live(struct heaptap_process* process, __u64 process_id, struct heaptap_live* entry) {
  __u64 size = entry->size;
  if (size == 0 || size == HEAPTAP_LIVE_CLAIMED) return 1;
  /* Read before the entry is given up: afterwards a sweep may delete it, and its memory be another entry's at once. */
  __u64 weight = entry->weight;
  struct heaptap_tally_key key = {.process_id = process_id, .stack_id = entry->stack_id, .tid = entry->tid};
  asm volatile("" ::: "memory");
  if (__sync_val_compare_and_swap(&entry->size, size, 0) != size) return 1;
  struct heaptap_tally* tally = bpf_map_lookup_elem(&tallies, &key);
  if (tally) count_freed(&tally->freed, size, weight);
  if (has_figures_of(process, process_id)) {
    add(&process->live_weight, -weight);
    add(&process->live_objects, -1ULL);
  }
  return 0;
}

/* Counts `more` new entries, and asks for a sweep if there are many, or if somebody found no room. */
static __always_inline void count_live_entries(__u32 tgid, __u64 process_id, __u64 more, int found_no_room) {
  __u64* entries = counter(HEAPTAP_COUNTER_LIVE_ENTRIES);
  __u64* sweep_at = counter(HEAPTAP_COUNTER_SWEEP_AT);
  if (!entries || !sweep_at) return;
  __u64 now = __sync_fetch_and_add(entries, more) + more;
  __u64 at = *sweep_at;
  /* Below 0 when a sweep has counted an entry before the program that made it. */
  int is_filling = (__s64)now >= (__s64)at || found_no_room;
  if (at != ~0ULL && is_filling && __sync_val_compare_and_swap(sweep_at, at, ~0ULL) == at)
    send_event(HEAPTAP_EVENT_LIVE_FILLING, tgid, process_id, now);
}

/* Whether a process with figures has its share of a map: 1 for its own bound, 2 for as many entries as are still free.
 * Counts are signed: they can be below 0 for a moment, and a program that met a reset may leave one too few. */
static __always_inline int has_share(const struct heaptap_process* process, __u64 own, __u64 bound, __u64 room,
                                     __u32 entries) {
  if (!has_figures(process)) return 0;
  if (bound != 0 && (__s64)own >= (__s64)bound) return 1;
  const __u64* taken = counter(entries);
  return room != 0 && taken && (__s64)(own + *taken) >= (__s64)room ? 2 : 0;
}

/* A sweep takes an entry and deletes it at once, and the kernel refills its stock of memory within an interrupt: so
 * many looks outlast both. */
#define PATIENT_TRIES 1000

struct new_entry {
  struct heaptap_live_key key;
  struct heaptap_live object;
  long error;
};

static long try_to_insert(__u32 index, struct new_entry* entry) {
  entry->error = bpf_map_update_elem(&live, &entry->key, &entry->object, BPF_NOEXIST);
  return entry->error != -EEXIST && entry->error != -ENOMEM;
}

/* Returns 0, or a negative errno. An entry that is there is one that a sweep is about to delete. */
static __noinline long insert_patiently(const struct heaptap_live_key* key, const struct heaptap_live* object) {
  if (!key || !object) return -ENOMEM; /* never */
  struct new_entry entry = {.key = *key, .object = *object};
  bpf_loop(PATIENT_TRIES, try_to_insert, &entry, 0);
  return entry.error;
}

/* Enters an object. Returns 0, or the HEAPTAP_LOSS_* reason, negative, if it is not in the books. */
static __always_inline int insert_live(struct heaptap_process* process, __u32 tgid, const struct heaptap_live_key* key,
                                       const struct heaptap_live* object) {
  const struct heaptap_settings* of_all = read_settings();
  int share = has_share(process, process->live_objects, process->max_live, of_all ? of_all->live_room : 0,
                        HEAPTAP_COUNTER_LIVE_ENTRIES);
  if (share) {
    /* What is freed counts as taken until it is swept. */
    if (share == 2) count_live_entries(tgid, key->process_id, 0, 1);
    return -HEAPTAP_LOSS_LIVE_SHARE;
  }
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, key);
  if (entry && entry->size != HEAPTAP_LIVE_CLAIMED && remove_live(process, key->process_id, entry) == 0)
    lose(key->process_id, HEAPTAP_LOSS_MISSED_FREE, object->weight);
  /* Taken before it is written: a sweep may want it too, and deleted entries are other entries at once. */
  if (!entry || __sync_val_compare_and_swap(&entry->size, 0, HEAPTAP_LIVE_CLAIMED) != 0) {
    long error = bpf_map_update_elem(&live, key, object, BPF_NOEXIST);
    if (error == -EEXIST || error == -ENOMEM) error = insert_patiently(key, object);
    /* Also when the map is full: since the last sweep objects may have been freed. */
    count_live_entries(tgid, key->process_id, error ? 0 : 1, 0);
    return error ? -HEAPTAP_LOSS_LIVE_FULL : 0;
  }
  entry->weight = object->weight;
  entry->stack_id = object->stack_id;
  entry->time = object->time;
  entry->tid = object->tid;
  entry->record = object->record;
  __sync_lock_test_and_set(&entry->size, object->size);
  return 0;
}

#endif /* HEAPTAP_BOOKS_BPF_H_ */
