// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * The programs: those for samples stand here, the others in the *_programs.bpf.h.
 *
 * A probe's arguments lie in the SysV argument registers (allocator/include/heaptap/contract.h), so the programs read
 * them from there. What a process says is trusted for its own books only.
 *
 * The comment of a program names where it is attached, what it reads, what it changes, what happens when a map is full,
 * and what it costs. All programs on probes look up the process first; a process that is not recorded costs no more.
 */
#include "bpf/books.bpf.h"
#include "bpf/command_programs.bpf.h"
#include "bpf/figures.bpf.h"
#include "bpf/frees.bpf.h"
#include "bpf/kernel.h"
#include "bpf/life_programs.bpf.h"
#include "bpf/maps.bpf.h"
#include "bpf/process.bpf.h"
#include "bpf/records.bpf.h"
#include "bpf/request_programs.bpf.h"
#include "bpf/stack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A forged weight must not overflow weight << HEAPTAP_OBJECT_FRACTION_BITS; no address space is larger. */
#define MAX_WEIGHT (1ULL << 47)

/* `serial`: of the sample; `is_numbered`: the process gave it. */
static __always_inline void record_sample(struct pt_regs* context, struct heaptap_process* process, __u64 pid_tgid,
                                          __u64 now, __u64 serial, int is_numbered) {
  __u32 tgid = pid_tgid >> 32;
  struct heaptap_live_key key = {.process_id = process->identity.id, .address = PT_REGS_PARM1(context)};
  struct heaptap_live object = {
      .serial = serial,
      .size = PT_REGS_PARM2(context),
      .weight = PT_REGS_PARM3(context),
      .time = now,
      .tid = (__u32)pid_tgid,
  };
  if (object.size == 0 || object.weight < object.size || object.weight > MAX_WEIGHT || !is_serial(serial)) {
    count_loss(key.process_id, HEAPTAP_LOSS_BAD_SAMPLE, 0);
    return;
  }
  struct heaptap_tally_key tally_key = {.process_id = key.process_id, .tid = object.tid};
  struct heaptap_tally* tally;
  enum heaptap_loss_reason stack_loss;
  enum heaptap_loss_reason loss = find_tally(context, process, tgid, &tally_key, &tally, &stack_loss);
  object.stack_id = tally_key.stack_id;
  if (tally) {
    if (process->flags & HEAPTAP_PROCESS_RECORDS) object.record = add_record(&key, &object);
    loss = insert_live(process, tgid, &key, &object, is_numbered);
    if (loss != HEAPTAP_NO_LOSS && object.record) drop_record(object.record, &key);
  }
  /* One loss at most: a sample that is not in the books misses no stack there. */
  if (loss != HEAPTAP_NO_LOSS || !tally) {
    count_loss(key.process_id, loss, object.weight);
    return;
  }
  if (stack_loss != HEAPTAP_NO_LOSS) count_loss(key.process_id, stack_loss, object.weight);
  count_allocated(&tally->allocated, object.size, object.weight);
  count_figures(process, tgid, key.process_id, object.weight);
}

/* A sampled allocation of an allocator that does not number its samples.
 *   attached  otel_memory:alloc(address, size, weight)
 *   reads     the registers and the stack of the thread; `settings`, `files`, `rows`
 *   changes   `stacks`, `tallies`, `live`; figures and costs of the process; with HEAPTAP_PROCESS_RECORDS `records`;
 *             `processes` if the process enters; `files`, `raw_stacks` and `events` when a table is not loaded
 *   if full   the sample (`live`, `tallies`) or its stack (`stacks`) is a counted loss
 *   cost      the walk: one look-up in the rule cache for each frame, one read of memory for each page of the stack;
 *             three look-ups in hash maps, one change of an entry in place; two insertions more for a new stack; with
 *             figures five atomic adds and two reads of the clock */
SEC("uprobe")
int probe_alloc(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_or_enter(pid_tgid >> 32);
  if (!process) return 0;
  __u64 now = bpf_ktime_get_ns();
  /* Two samples at one address have different times. */
  record_sample(context, process, pid_tgid, now, now, 0);
  if (has_figures(process)) {
    add(&process->costs.allocations, 1);
    add(&process->costs.program_time, bpf_ktime_get_ns() - now);
  }
  return 0;
}

/* A sampled allocation of an allocator that numbers its samples, with the frees that the thread has held back.
 *   attached  otel_memory:alloc(address, size, weight, serial, frees, where, first), in a file with heaptap:frees
 *   reads, changes, if full, cost: as probe_alloc and probe_frees, with one breakpoint for both */
SEC("uprobe")
int probe_sample(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_or_enter(pid_tgid >> 32);
  if (!process) return 0;
  __u64 now = bpf_ktime_get_ns();
  __u64 serial = PT_REGS_PARM4(context);
  __u64 frees = PT_REGS_PARM5(context);
  __u64 where = context->r9;
  struct heaptap_free first = {.address = context->r10, .serial = context->r11};
  take_frees_at(process, frees, where, &first);
  record_sample(context, process, pid_tgid, now, serial, 1);
  if (has_figures(process)) {
    add(&process->costs.allocations, 1);
    add(&process->costs.program_time, bpf_ktime_get_ns() - now);
  }
  return 0;
}

/* `serial`: of the object; 0: of any. */
static __always_inline void record_free(struct pt_regs* context, struct heaptap_process* process, __u64 pid_tgid,
                                        __u64 address, __u64 serial) {
  __u32 tgid = pid_tgid >> 32;
  struct heaptap_live_key key = {.process_id = process->identity.id, .address = address};
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, &key);
  /* Not found: sampled before the recording or a fork, or a loss that was counted at the allocation. */
  if (!entry) return;
  __u32 record = entry->record;
  if (!serial) serial = entry->serial;
  if (!is_serial(serial) || remove_live(process, key.process_id, entry, serial) || !record) return;
  /* The tally stays empty: it leads to the stack of the free when the books are deleted. */
  struct heaptap_tally_key tally_key = {.process_id = key.process_id, .tid = (__u32)pid_tgid};
  struct heaptap_tally* tally;
  enum heaptap_loss_reason stack_loss;
  enum heaptap_loss_reason loss = find_tally(context, process, tgid, &tally_key, &tally, &stack_loss);
  if (!tally) stack_loss = loss;
  if (stack_loss != HEAPTAP_NO_LOSS) count_loss(key.process_id, stack_loss, 0);
  end_record(record, &key, tally_key.stack_id, tally_key.tid);
}

/* A sampled block is about to be freed, by an allocator that does not number its samples.
 *   attached  otel_memory:free(address)
 *   reads     the registers
 *   changes   `live`, `tallies`; figures and costs of the process; with HEAPTAP_PROCESS_RECORDS `records`, and the maps
 *             that a walk changes (probe_alloc)
 *   if full   nothing is entered; with HEAPTAP_PROCESS_RECORDS the stack of the free may be a counted loss
 *   cost      three look-ups in hash maps, one compare-and-swap, four atomic adds; with figures four more adds and two
 *             reads of the clock; with HEAPTAP_PROCESS_RECORDS the walk */
SEC("uprobe")
int probe_free(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process || process->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  __u64 begin = has_figures(process) ? bpf_ktime_get_ns() : 0;
  record_free(context, process, pid_tgid, PT_REGS_PARM1(context), 0);
  if (has_figures(process)) {
    add(&process->costs.frees, 1);
    add(&process->costs.program_time, bpf_ktime_get_ns() - begin);
  }
  return 0;
}

/* Sampled blocks have been freed.
 *   attached  heaptap:frees(frees, where)
 *   reads     the registers and the frees
 *   changes   `live`, `tallies`; figures and costs of the process; where its frees are, in `processes`; with
 *             HEAPTAP_PROCESS_RECORDS `records`, and the maps that a walk changes (probe_alloc)
 *   if full   nothing is entered; with HEAPTAP_PROCESS_RECORDS the stack of the free may be a counted loss
 *   cost      for each free, at most HEAPTAP_SLOT_FREES, a read of 16 bytes, two look-ups in hash maps, one
 *             compare-and-swap, four atomic adds; with HEAPTAP_PROCESS_RECORDS the walk */
SEC("uprobe")
int probe_frees(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process || process->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  __u64 begin = has_figures(process) ? bpf_ktime_get_ns() : 0;
  __u64 frees = PT_REGS_PARM1(context);
  __u64 where = PT_REGS_PARM2(context);
  struct heaptap_free freed;
  if (!(process->flags & HEAPTAP_PROCESS_RECORDS) || (__u32)where != 1) {
    take_frees_at(process, frees, where, NULL);
  } else if (bpf_probe_read_user(&freed, sizeof(freed), (const void*)frees) == 0 && is_serial(freed.serial)) {
    record_free(context, process, pid_tgid, freed.address, freed.serial);
    if (has_figures(process)) add(&process->costs.frees, 1);
  }
  if (has_figures(process)) add(&process->costs.program_time, bpf_ktime_get_ns() - begin);
  return 0;
}

/* Every probe site of a file, by one link: removing one link takes the kernel one grace period.
 *   attached  all sites of a file, where the kernel has links to many sites (Linux 6.6)
 *   reads     the cookie of the site (enum heaptap_probe); `programs`
 *   changes   what the called program changes
 *   if full   nothing is entered
 *   cost      one helper call and a tail call */
SEC("uprobe")
int probe_any(struct pt_regs* context) {
  bpf_tail_call(context, &programs, (__u32)bpf_get_attach_cookie(context));
  return 0;
}
