/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Programs that the collector runs, most of them with an argument of bpf/commands.h. In their comments `run` says when.
 */
#ifndef HEAPTAP_COMMAND_PROGRAMS_BPF_H_
#define HEAPTAP_COMMAND_PROGRAMS_BPF_H_

#include "bpf/books.bpf.h"
#include "bpf/code.bpf.h"
#include "bpf/commands.h"
#include "bpf/frees.bpf.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/process.bpf.h"

/* Makes cached rules of a process invalid.
 *   run       when the collector has heard of a change of the process's mappings
 *   reads     `processes`
 *   changes   the number of changes of mappings in `processes`
 *   if full   nothing is entered
 *   cost      one look-up and an atomic add */
SEC("syscall")
int invalidate_rules(struct heaptap_invalidate_rules* argument) {
  struct heaptap_process* process = find_process(argument->tgid);
  if (process) __sync_fetch_and_add(&process->mappings, 1);
  return 0;
}

static long find_inode(struct task_struct* task, struct vm_area_struct* mapping, __u64* inode_address) {
  struct file* file = mapping->vm_file;
  if (file) *inode_address = (__u64)file->f_inode;
  return 0;
}

/* Tells which file the calling process has mapped at an address.
 *   run       by the collector, with a file in its own memory, when it adds the unwind table of the file
 *   reads     the collector's list of mappings
 *   changes   its argument
 *   if full   nothing is entered
 *   cost      two searches of the list of mappings */
SEC("syscall")
int identify(struct heaptap_identify* argument) {
  struct place place = {.pc = argument->address};
  bpf_find_vma(bpf_get_current_task_btf(), place.pc, find_place, &place, 0);
  argument->file = place.file;
  __u64 inode_address = 0;
  bpf_find_vma(bpf_get_current_task_btf(), place.pc, find_inode, &inode_address, 0);
  argument->inode_address = inode_address;
  return 0;
}

/* Sets limits and triggers of a recorded process, or ignores it from now on. An unchanged trigger keeps its mark.
 *   run       when a rule of the collector applies to the process
 *   reads     `processes`
 *   changes   limits, triggers, marks and flags in `processes`
 *   if full   nothing is entered
 *   cost      one look-up and a few writes */
SEC("syscall")
int configure(struct heaptap_configure* argument) {
  __u32 tgid = argument->tgid;
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || process->identity.id != argument->process_id || process->flags & HEAPTAP_PROCESS_SHARES_PARENT)
    return 0;
  const struct heaptap_triggers* triggers = &argument->triggers;
  process->limits = argument->limits;
  if (process->triggers.first_high_water != triggers->first_high_water ||
      process->triggers.high_water_percent != triggers->high_water_percent) {
    process->triggers.first_high_water = triggers->first_high_water;
    process->triggers.high_water_percent = triggers->high_water_percent;
    process->marks.high_water_at = heaptap_mark_after(0, triggers->first_high_water);
  }
  if (process->triggers.interval_step != triggers->interval_step) {
    process->triggers.interval_step = triggers->interval_step;
    process->marks.interval_at = heaptap_mark_after(process->figures.allocated_weight, triggers->interval_step);
  }
  if (argument->flags & HEAPTAP_PROCESS_IGNORED) __sync_fetch_and_or(&process->flags, HEAPTAP_PROCESS_IGNORED);
  argument->done = 1;
  return 0;
}

/* Enters the first area of a process.
 *   run       when the collector gives the area to the process
 *   reads     `processes`
 *   changes   `processes`
 *   if full   nothing is entered
 *   cost      one look-up and a write */
SEC("syscall")
int give_area(struct heaptap_give_area* argument) {
  __u32 tgid = argument->tgid;
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || process->identity.id != argument->process_id || process->flags & HEAPTAP_PROCESS_SHARES_PARENT)
    return 0;
  process->area = argument->slot;
  argument->done = 1;
  return 0;
}

/* Stops recording a process; its books stay.
 *   run       when the collector detaches from the process, or finds an entry of a process that has ended
 *   reads     `processes`
 *   changes   `processes`, `users`
 *   if full   nothing is entered
 *   cost      two look-ups and an atomic add */
SEC("syscall")
int untrack(struct heaptap_untrack* argument) {
  __u32 tgid = argument->tgid;
  const struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (process) drop_process(tgid, process->identity.user);
  return 0;
}

static __always_inline void add_count(struct heaptap_count* sum, const struct heaptap_count* more) {
  add(&sum->objects, more->objects);
  add(&sum->bytes, more->bytes);
  add(&sum->weight, more->weight);
  add(&sum->weighted_objects, more->weighted_objects);
  add(&sum->variance, more->variance);
}

/* Adds the tally of a thread that has ended to the tally of thread 0 on the same stack. When no sample of the tally is
 * live, only its own thread changes it. A new thread with the same TID would change it too, so the program refuses if
 * the process has begun a thread since the collector saw that this one had ended.
 *   run       when `tallies` fills up, for each tally of a thread that has ended
 *   reads     `tallies`, `processes`
 *   changes   `tallies`, the counter and the figure of its entries
 *   if full   nothing is done
 *   cost      five operations on hash maps, five adds for each half of the tally */
SEC("syscall")
int fold(struct heaptap_fold* argument) {
  struct heaptap_tally_key key = argument->key;
  struct heaptap_tally_key sum_key = {.process_id = key.process_id, .stack_id = key.stack_id};
  if (key.tid == 0) return 0;
  struct heaptap_tally* tally = bpf_map_lookup_elem(&tallies, &key);
  if (!tally || tally->allocated.objects != tally->freed.objects) return 0;
  __u32 tgid = argument->tgid;
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (process && process->threads_begun != argument->threads_begun) return 0;
  struct heaptap_tally none = {};
  __u64 more = bpf_map_update_elem(&tallies, &sum_key, &none, BPF_NOEXIST) == 0;
  struct heaptap_tally* sum = bpf_map_lookup_elem(&tallies, &sum_key);
  if (!sum) return 0;
  add_count(&sum->allocated, &tally->allocated);
  add_count(&sum->freed, &tally->freed);
  if (bpf_map_delete_elem(&tallies, &key) == 0) more--;
  __u64* all = counter(HEAPTAP_COUNTER_TALLIES);
  if (all) add(all, more);
  if (process && process->identity.id == key.process_id && has_figures(process)) add(&process->figures.tallies, more);
  argument->done = 1;
  return 0;
}

/* Counts tallies that the collector has deleted.
 *   run       when the books of processes have been deleted
 *   reads     nothing
 *   changes   the counter of the entries of `tallies`
 *   if full   nothing is entered
 *   cost      an atomic add */
SEC("syscall")
int tallies_deleted(struct heaptap_tallies_deleted* argument) {
  __u64* all = counter(HEAPTAP_COUNTER_TALLIES);
  if (all) add(all, -argument->tallies);
  return 0;
}

/* Takes frees that a process holds back.
 *   run       before its profile is made
 *   reads     its argument, the frees in the collector's memory; `processes`
 *   changes   `live`, `tallies`; figures of the process
 *   if full   nothing is entered
 *   cost      the same as probe_free */
SEC("syscall")
int take_frees(struct heaptap_take_frees* argument) {
  struct heaptap_process* process = find_process(argument->tgid);
  if (!process || process->identity.id != argument->process_id) return 0;
  struct removed removed = {};
  take_frees_of(argument->process_id, argument->frees, argument->count, &removed);
  count_removed(process, argument->process_id, &removed);
  return 0;
}

struct sweep_state {
  __u64 deleted;
};

static long sweep_entry(void* map, const struct heaptap_live_key* key, struct heaptap_live* entry,
                        struct sweep_state* state) {
  __u64 process_id = key->process_id;
  if (!bpf_map_lookup_elem(&forgotten, &process_id) &&
      __sync_val_compare_and_swap(&entry->serial, HEAPTAP_LIVE_NONE, HEAPTAP_LIVE_CLAIMED) != HEAPTAP_LIVE_NONE)
    return 0;
  if (bpf_map_delete_elem(map, key) == 0) state->deleted++;
  return 0;
}

/* Deletes entries of `live` without an object, and all entries of processes whose books are deleted.
 *   run       at HEAPTAP_EVENT_LIVE_FILLING, and after books were deleted
 *   reads     `forgotten`
 *   changes   `live` and the counter of its entries
 *   if full   nothing is entered
 *   cost      a look-up and a compare-and-swap for each entry of `live`, a deletion for most of them */
SEC("syscall")
int sweep(void* context) {
  struct sweep_state state = {};
  bpf_for_each_map_elem(&live, sweep_entry, &state, 0);
  __u64* entries = counter(HEAPTAP_COUNTER_LIVE_ENTRIES);
  if (entries) add(entries, -state.deleted);
  return 0;
}

#endif /* HEAPTAP_COMMAND_PROGRAMS_BPF_H_ */
