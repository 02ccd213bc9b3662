// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * The programs: programs on samples are here, all others in the *_programs.bpf.h.
 *
 * A probe's arguments lie in the SysV argument registers (allocator/include/heaptap/contract.h), so the programs read
 * them from there. What a process says is trusted for its own books only.
 *
 * The comment of a program names where it is attached, what it reads, what it changes, what happens when a map is full,
 * and what it costs. All programs on probes look up the process first; a process that is not recorded costs no more.
 */
#include "bpf/areas.bpf.h"
#include "bpf/books.bpf.h"
#include "bpf/command_programs.bpf.h"
#include "bpf/figures.bpf.h"
#include "bpf/frees.bpf.h"
#include "bpf/kernel.h"
#include "bpf/life_programs.bpf.h"
#include "bpf/maps.bpf.h"
#include "bpf/names.bpf.h"
#include "bpf/process.bpf.h"
#include "bpf/records.bpf.h"
#include "bpf/request_programs.bpf.h"
#include "bpf/shapes.h"
#include "bpf/stack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Keeps the name of a heap, unless it is known. */
__noinline int keep_heap_name(__u32 slot, __u64 process_id, __u32 tid, __u64 name) {
  struct heaptap_thread_key key = {.process_id = process_id, .tid = tid};
  struct heaptap_thread_name value = {.given = 1};
  if (bpf_map_lookup_elem(&names, &key)) return 0;
  if (bpf_probe_read_user_str(value.name, sizeof(value.name), (const void*)name) < 0) return 0;
  make_room_for_name(slot, process_id, tid);
  bpf_map_update_elem(&names, &key, &value, BPF_ANY);
  return 0;
}

/* A sampled allocation. Its address, size and weight are in the registers. */
struct sample {
  struct pt_regs* context;
  struct heaptap_process* process;
  __u64 process_id; /* of the books; the process may have others by now */
  __u64 pid_tgid;
  struct scratch* scratch; /* what take_stack() returned */
  __u64 time;
  __u64 serial;
  int is_numbered; /* the process gave the serial number */
  __u64 heap;      /* the number of its heap; 0: it belongs to no heap */
};

/* `removed`, `reuse`: what the program has removed from the same books. Returns 0, or 1 if the sample is not in the
 * books; then `removed` is not counted and `reuse` is not used. */
static __always_inline int record_sample(const struct sample* sample, struct removed* removed,
                                         const struct reuse* reuse) {
  struct pt_regs* const context = sample->context;
  struct heaptap_process* const process = sample->process;
  const __u32 tgid = sample->pid_tgid >> 32;
  struct heaptap_live_key key = {.process_id = sample->process_id,
                                 .address = PT_REGS_PARM1(context) ^ HEAPTAP_HEAP_TAG(sample->heap)};
  __u32 name_id = HEAPTAP_HEAP_NAME_ID(sample->heap);
  struct heaptap_live object = {
      .serial = sample->serial,
      .size = PT_REGS_PARM2(context),
      .weight = PT_REGS_PARM3(context),
      .time = sample->time,
      .tid = name_id ? HEAPTAP_HEAP_TID | name_id : (__u32)sample->pid_tgid,
  };
  if (object.size == 0 || object.weight < object.size || object.weight > MAX_WEIGHT || !is_serial(object.serial)) {
    if (sample->scratch) release_scratch(sample->scratch);
    count_loss(key.process_id, HEAPTAP_LOSS_BAD_SAMPLE, 0);
    return 1;
  }
  struct heaptap_tally_key tally_key = {.process_id = key.process_id, .tid = object.tid};
  const struct found_tally found = find_tally(process, sample->scratch, reuse, &tally_key);
  enum heaptap_loss_reason loss = found.loss;
  object.stack_id = tally_key.stack_id;
  if (found.tally) {
    if (process->flags & HEAPTAP_PROCESS_RECORDS) object.record = add_record(&key, &object);
    if (reuse->entry) {
      fill_in(reuse->entry, &object);
      loss = HEAPTAP_NO_LOSS;
    } else {
      loss = insert_live(process, &key, &object, sample->is_numbered, removed);
    }
    if (loss != HEAPTAP_NO_LOSS && object.record) drop_record(object.record, &key);
  }
  /* At most one loss is counted: a sample that is not in the books cannot miss its stack there. */
  if (loss != HEAPTAP_NO_LOSS || !found.tally) {
    count_loss(key.process_id, loss, object.weight);
    return 1;
  }
  if (found.stack_loss != HEAPTAP_NO_LOSS) {
    count_loss(key.process_id, found.stack_loss, object.weight);
    if (process->area) take_words_back(process->area, context->r9);
  }
  if (name_id) {
    keep_heap_name(process->identity.user, key.process_id, object.tid, PT_REGS_PARM5(context));
    count_shared(&found.tally->allocated, object.size, object.weight);
  } else {
    count_allocated(&found.tally->allocated, object.size, object.weight);
  }
  count_figures(process, tgid, key.process_id, object.weight, removed);
  return 0;
}

/* The first samples of a process are timed one by one, so that few samples give a good estimate. Later, one sample is
 * timed for several, because reading the clock costs a twentieth of a sample. */
#define SAMPLES_TIMED 256
#define SAMPLES_PER_TIMED 16

/* How many samples the time of the next one stands for. 0: the next one is not timed. */
__noinline __u64 samples_to_time(const struct heaptap_process* process) {
  if (!process) return 0; /* never */
  __u64 samples = process->costs.allocations;
  if (!has_figures(process)) return 0;
  if (samples < SAMPLES_TIMED) return 1;
  return samples % SAMPLES_PER_TIMED == 0 ? SAMPLES_PER_TIMED : 0;
}

/* Counts a probe in `probes`, and its time since `begin` for `timed` probes. */
static __always_inline void count_costs(struct heaptap_process* process, __u64* probes, __u64 timed, __u64 begin) {
  if (!has_figures(process)) return;
  add(probes, 1);
  if (timed != 0) add(&process->costs.program_time, timed * (bpf_ktime_get_ns() - begin));
}

static __always_inline int is_free(__u64 site) {
  return site == HEAPTAP_PROBE_FREE_SITE || site == HEAPTAP_PROBE_HEAP_FREE_SITE || site == HEAPTAP_PROBE_FREES_SITE;
}

/* The block that a site of one free names. Its serial number is 0 if any object at the address is meant. */
static __always_inline struct heaptap_free one_free(struct pt_regs* context, __u64 site) {
  const __u64 first = PT_REGS_PARM1(context);
  struct heaptap_free freed = {.address = first};
  if (site == HEAPTAP_PROBE_HEAP_FREE_SITE) freed.address ^= HEAPTAP_HEAP_TAG(PT_REGS_PARM2(context));
  if (site == HEAPTAP_PROBE_FREES_SITE &&
      (bpf_probe_read_user(&freed, sizeof(freed), (const void*)first) != 0 || freed.serial == 0)) {
    freed.serial = HEAPTAP_LIVE_CLAIMED; /* no object has it */
  }
  return freed;
}

/* Takes the block out of the books. Returns the number of its record, or 0. */
static __always_inline __u32 take_one_free(struct heaptap_process* process, const struct heaptap_live_key* key,
                                           __u64 serial) {
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, key);
  /* The sample came before the recording or a fork, or was a loss. */
  if (!entry) return 0;
  const __u32 record = entry->record;
  if (!serial) serial = entry->serial;
  struct removed removed = {};
  struct heaptap_tally* tally;
  if (!is_serial(serial) || remove_live(key->process_id, entry, serial, HEAPTAP_LIVE_NONE, &removed, &tally)) return 0;
  count_removed(process, key->process_id, &removed);
  return record;
}

/* One free while the process keeps records: the record gets the stack of the free. */
static __always_inline int free_recorded(struct pt_regs* context, __u64 site) {
  const __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process) return 0;
  const __u64 begin = has_figures(process) ? bpf_ktime_get_ns() : 0;
  const struct heaptap_free freed = one_free(context, site);
  struct heaptap_live_key key = {.process_id = process->identity.id, .address = freed.address};
  const __u32 record = take_one_free(process, &key, freed.serial);
  if (record) {
    /* The tally stays empty: it leads to the stack of the free when the books are deleted. */
    struct heaptap_tally_key tally_key = {.process_id = key.process_id, .tid = (__u32)pid_tgid};
    const struct reuse none = {};
    struct scratch* scratch = take_stack(context, process, pid_tgid >> 32, key.process_id);
    const struct found_tally found = find_tally(process, scratch, &none, &tally_key);
    const enum heaptap_loss_reason stack_loss = found.tally ? found.stack_loss : found.loss;
    if (stack_loss != HEAPTAP_NO_LOSS) count_loss(key.process_id, stack_loss, 0);
    end_record(record, &key, tally_key.stack_id, tally_key.tid);
  }
  count_costs(process, &process->costs.frees, 1, begin);
  return 0;
}

/* A sampled allocation. At HEAPTAP_PROBE_SAMPLE_SITE the process has numbered it, and its thread passes on the frees
 * that it has held back. At other sites the time is its serial number.
 * For probe_free the program also takes one free of a process with HEAPTAP_PROCESS_RECORDS, which needs a walk too: the
 * verifier checks a walk once for each program that holds it.
 *   attached  otel_memory:alloc(address, size, weight, serial, frees, where, first), in a file with heaptap:frees;
 *             otel_memory:alloc(address, size, weight) of other allocators;
 *             heaptap:heap_alloc(address, size, weight, heap, name)
 *   reads     the registers, the stack of the thread and the frees; the cookie of the site; the name of a heap that is
 *             new; `settings`, `files`, `rows`
 *   changes   `names` if the heap is new; `stacks`, `tallies`, `live`; figures and costs of the process, and where its
 *             frees are; with HEAPTAP_PROCESS_RECORDS `records`; `processes` if the process enters; `files`,
 *             `raw_stacks` and `events` when a table is not loaded
 *   if full   the sample (`live`, `tallies`) or its stack (`stacks`) is a counted loss
 *   cost      the walk: one read of as much of the stack as earlier walks needed, or of a page each; a comparison
 *             for each word that the last walk on the CPU has read, or else one look-up in the rule cache for each
 *             frame; three look-ups in hash maps, one change of an entry in place; two insertions more for a new
 *             stack; with figures four atomic adds; a read of the clock once a tick, and once in SAMPLES_PER_TIMED
 *             samples two more; for each free what it costs in probe_free */
SEC("uprobe")
int probe_sample(struct pt_regs* context) {
  const __u64 site = bpf_get_attach_cookie(context);
  if (is_free(site)) return free_recorded(context, site);
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_or_enter(pid_tgid >> 32);
  if (!process) return 0;
  const int is_numbered = site == HEAPTAP_PROBE_SAMPLE_SITE;
  const __u64 timed = samples_to_time(process);
  /* Logs of samples have exact times, and two samples at one address without numbers have different times. */
  const int is_exact = timed != 0 || process->flags & HEAPTAP_PROCESS_RECORDS || !is_numbered;
  __u64 now = is_exact ? bpf_ktime_get_ns() : 0;
  const __u64 process_id = process->identity.id;
  struct scratch* scratch = take_stack(context, process, pid_tgid >> 32, process_id);
  if (!now) now = scratch ? time_of_tick(scratch) : bpf_ktime_get_ns();
  if (is_numbered && scratch && process->area && !(process->flags & HEAPTAP_PROCESS_RECORDS))
    tell_words(scratch, process->area, context->r9, PT_REGS_PARM4(context));
  struct removed removed = {};
  struct reuse reuse = {};
  if (is_numbered) {
    const __u64 frees = PT_REGS_PARM5(context);
    const __u64 count = note_frees(process, frees, context->r9);
    if (count != 0) {
      take_first_free(process_id, context->r10, context->r11, PT_REGS_PARM1(context),
                      scratch ? scratch->stack_id : HEAPTAP_NO_STACK, pid_tgid, &removed, &reuse);
    }
    if (count > 1) take_frees_of(process_id, frees + sizeof(struct heaptap_free), count - 1, &removed);
  }
  /* Asked again: a stack of 512 bytes has no room to remember the site. */
  const int is_of_heap = !is_numbered && bpf_get_attach_cookie(context) == HEAPTAP_PROBE_HEAP_ALLOC_SITE;
  const struct sample sample = {
      .context = context,
      .process = process,
      .process_id = process_id,
      .pid_tgid = pid_tgid,
      .scratch = scratch,
      .time = now,
      .serial = is_numbered ? PT_REGS_PARM4(context) : now,
      .is_numbered = is_numbered,
      .heap = is_of_heap ? PT_REGS_PARM4(context) : 0,
  };
  if (record_sample(&sample, &removed, &reuse)) {
    if (reuse.entry) *(volatile __u64*)&reuse.entry->serial = HEAPTAP_LIVE_NONE;
    if (process->area) take_words_back(process->area, context->r9);
    count_removed(process, process_id, &removed);
  }
  count_costs(process, &process->costs.allocations, timed, now);
  return 0;
}

/* Frees of sampled blocks: at HEAPTAP_PROBE_FREES_SITE the frees that a thread has held back, at other sites one free.
 *   attached  heaptap:frees(frees, where); otel_memory:free(address) of other allocators;
 *             heaptap:heap_free(address, heap)
 *   reads     the registers and the frees; the cookie of the site
 *   changes   `live`, `tallies`; figures and costs of the process, and where its frees are; with
 *             HEAPTAP_PROCESS_RECORDS `records`, and the maps that a walk changes (probe_sample)
 *   if full   nothing is entered; with HEAPTAP_PROCESS_RECORDS the stack of the free may be a counted loss
 *   cost      for each free, at most HEAPTAP_SLOT_FREES, a read of 16 bytes, two look-ups in hash maps, one
 *             compare-and-swap, four atomic adds; with figures four more adds and two reads of the clock for all; with
 *             HEAPTAP_PROCESS_RECORDS the walk, in probe_sample */
SEC("uprobe")
int probe_free(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process || process->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  const __u64 site = bpf_get_attach_cookie(context);
  const __u64 second = PT_REGS_PARM2(context);
  const int is_one = site != HEAPTAP_PROBE_FREES_SITE || (__u32)second == 1;
  /* If the program is not there, the record of the block has no end. */
  if (is_one && process->flags & HEAPTAP_PROCESS_RECORDS)
    bpf_tail_call_static(context, &programs, HEAPTAP_PROBE_SAMPLE_SITE);
  const __u64 begin = has_figures(process) ? bpf_ktime_get_ns() : 0;
  if (site == HEAPTAP_PROBE_FREES_SITE) {
    const __u64 first = PT_REGS_PARM1(context);
    const __u64 process_id = process->identity.id;
    struct removed removed = {};
    const __u64 count = note_frees(process, first, second);
    if (count != 0) take_frees_of(process_id, first, count, &removed);
    count_removed(process, process_id, &removed);
  } else {
    const struct heaptap_free freed = one_free(context, site);
    const struct heaptap_live_key key = {.process_id = process->identity.id, .address = freed.address};
    take_one_free(process, &key, freed.serial);
  }
  count_costs(process, &process->costs.frees, 1, begin);
  return 0;
}

/* Serves every probe site of a file by one link, because removing a link takes the kernel a grace period.
 *   attached  all sites of a file, where the kernel has links to many sites (Linux 6.6)
 *   reads     the cookie of the site (enum heaptap_probe); `programs`
 *   changes   what the called program changes
 *   if full   nothing is entered
 *   cost      one helper call and a tail call */
SEC("uprobe")
int probe_any(struct pt_regs* context) {
  const __u32 site = bpf_get_attach_cookie(context);
  /* A jump to a known program is direct; any other jump passes a retpoline, which takes some twenty nanoseconds. */
  if (site == HEAPTAP_PROBE_SAMPLE_SITE) bpf_tail_call_static(context, &programs, HEAPTAP_PROBE_SAMPLE_SITE);
  bpf_tail_call(context, &programs, site);
  return 0;
}
