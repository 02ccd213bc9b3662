// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * The programs: seven on the allocator's probes, four on the life of processes, six that the collector runs.
 *
 * A probe's arguments lie in the SysV argument registers (allocator/include/heaptap/contract.h), so they are read
 * straight from the registers. Nothing that a process says is trusted beyond its own books.
 */
/* clang-format off: the kernel's types come first. */
#include "bpf/kernel.h"
/* clang-format on */

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/books.bpf.h"
#include "bpf/maps.bpf.h"
#include "bpf/records.bpf.h"
#include "bpf/stack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NEVER (~0ULL)

/* A forged weight must not overflow weight << HEAPTAP_OBJECT_FRACTION_BITS; no address space is larger. */
#define MAX_WEIGHT (1ULL << 47)

static __always_inline struct heaptap_process* find_process(__u32 tgid) {
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || !(process->flags & HEAPTAP_PROCESS_SHARES_PARENT)) return process;
  __u32 tgid_of_parent = process->parent_tgid;
  struct heaptap_process* parent = bpf_map_lookup_elem(&processes, &tgid_of_parent);
  /* The parent may have ended, or another thread of it may have called exec, while the child lives on. */
  return parent && parent->id == process->id ? parent : NULL;
}

/* Counts a sample that is in the books, and looks whether it was one that the process's triggers wait for. */
static __always_inline void count_figures(struct heaptap_process* process, __u32 tgid, __u64 process_id, __u64 weight) {
  if (!has_figures_of(process, process_id)) return;
  add(&process->live_objects, 1);
  __u64 live_weight = __sync_fetch_and_add(&process->live_weight, weight) + weight;
  __u64 mark = process->high_water_at;
  /* Negative for a moment, when a free met a reset. */
  if ((__s64)live_weight < 0) live_weight = 0;
  /* Of two threads at once one may win with the smaller: the next sample mends it. */
  __u64 peak = process->peak_weight;
  if (live_weight > peak) __sync_val_compare_and_swap(&process->peak_weight, peak, live_weight);
  if (live_weight >= mark && mark != NEVER) {
    __u64 next = live_weight + live_weight * process->high_water_percent / 100;
    if (__sync_val_compare_and_swap(&process->high_water_at, mark, next) == mark)
      send_event(HEAPTAP_EVENT_HIGH_WATER, tgid, process->id, live_weight);
  }

  __u64 allocated = __sync_fetch_and_add(&process->allocated_weight, weight) + weight;
  __u64 at = process->interval_at;
  __u64 step = process->interval_step;
  if (allocated >= at && at != NEVER && step != 0) {
    __u64 next = at + ((allocated - at) / step + 1) * step;
    if (__sync_val_compare_and_swap(&process->interval_at, at, next) == at)
      send_event(HEAPTAP_EVENT_INTERVAL, tgid, process->id, allocated);
  }
}

static __always_inline __u64 make_process_id(void) {
  __u64* next = counter(HEAPTAP_COUNTER_NEXT_PROCESS_ID);
  return next ? __sync_fetch_and_add(next, 2) : 0;
}

/* Opens books for the process that the program is called in, if all processes shall have some. */
static __noinline int enter(__u32 tgid) {
  const struct heaptap_settings* of_all = read_settings();
  if (!of_all || !of_all->everyone) return 0;
  struct heaptap_process process = {
      .id = make_process_id(),
      .start_time = bpf_ktime_get_ns(),
      .flags = of_all->flags,
      .max_live = of_all->max_live,
      .max_tallies = of_all->max_tallies,
      .first_high_water = of_all->first_high_water,
      .high_water_at = of_all->first_high_water ? of_all->first_high_water : NEVER,
      .high_water_percent = of_all->high_water_percent,
      .interval_step = of_all->interval_step,
      .interval_at = of_all->interval_step ? of_all->interval_step : NEVER,
  };
  if (bpf_map_update_elem(&processes, &tgid, &process, BPF_NOEXIST)) {
    /* Another thread was faster, or the entry is one of a process that is left out; or there is no room. */
    if (!bpf_map_lookup_elem(&processes, &tgid)) lose(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
    return 0;
  }
  send_event(HEAPTAP_EVENT_ENTER, tgid, process.id, 0);
  return 0;
}

/* The process that the program is called in. */
static __always_inline struct heaptap_process* find_or_enter(__u32 tgid) {
  struct heaptap_process* process = find_process(tgid);
  if (process) return process->flags & HEAPTAP_PROCESS_IGNORED ? NULL : process;
  enter(tgid);
  process = find_process(tgid);
  return process && !(process->flags & HEAPTAP_PROCESS_IGNORED) ? process : NULL;
}

static __always_inline void record_sample(struct pt_regs* context, struct heaptap_process* process, __u64 pid_tgid,
                                          __u64 now) {
  __u32 tgid = pid_tgid >> 32;
  struct heaptap_live_key key = {.process_id = process->id, .address = PT_REGS_PARM1(context)};
  struct heaptap_live object = {
      .size = PT_REGS_PARM2(context),
      .weight = PT_REGS_PARM3(context),
      .time = now,
      .tid = (__u32)pid_tgid,
  };
  if (object.size == 0 || object.weight < object.size || object.weight > MAX_WEIGHT) {
    lose(key.process_id, HEAPTAP_LOSS_BAD_SAMPLE, 0);
    return;
  }
  struct heaptap_tally_key tally_key = {.process_id = key.process_id, .tid = object.tid};
  int no_stack = 0;
  int loss = 0;
  struct heaptap_tally* tally = find_tally(context, process, tgid, &tally_key, &no_stack, &loss);
  object.stack_id = tally_key.stack_id;
  if (tally) {
    if (process->flags & HEAPTAP_PROCESS_RECORDS) object.record = add_record(&key, &object);
    loss = insert_live(process, tgid, &key, &object);
    if (loss && object.record) drop_record(object.record, &key);
  }
  /* One loss at most: a sample that is not in the books has no stack to miss there. */
  if (loss || !tally) {
    lose(key.process_id, -loss, object.weight);
    return;
  }
  if (no_stack) lose(key.process_id, -no_stack, object.weight);
  count_allocated(&tally->allocated, object.size, object.weight);
  count_figures(process, tgid, key.process_id, object.weight);
}

SEC("uprobe")
int probe_alloc(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_or_enter(pid_tgid >> 32);
  if (!process) return 0;
  __u64 now = bpf_ktime_get_ns();
  record_sample(context, process, pid_tgid, now);
  if (has_figures(process)) {
    add(&process->allocations, 1);
    add(&process->program_time, bpf_ktime_get_ns() - now);
  }
  return 0;
}

static __always_inline void record_free(struct pt_regs* context, struct heaptap_process* process, __u64 pid_tgid) {
  __u32 tgid = pid_tgid >> 32;
  struct heaptap_live_key key = {.process_id = process->id, .address = PT_REGS_PARM1(context)};
  struct heaptap_live* entry = bpf_map_lookup_elem(&live, &key);
  /* Not found: sampled before the recording began, or before a fork, or never in the books (and counted then). */
  if (!entry) return;
  __u32 record = entry->record;
  if (remove_live(process, key.process_id, entry) || !record) return;
  /* The tally stays empty: it is there so that the stack is found when the books close. */
  struct heaptap_tally_key tally_key = {.process_id = key.process_id, .tid = (__u32)pid_tgid};
  int no_stack = 0;
  int no_tally = 0;
  find_tally(context, process, tgid, &tally_key, &no_stack, &no_tally);
  if (no_stack) lose(key.process_id, -no_stack, 0);
  end_record(record, &key, tally_key.stack_id, tally_key.tid);
}

SEC("uprobe")
int probe_free(struct pt_regs* context) {
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process || process->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  __u64 begin = has_figures(process) ? bpf_ktime_get_ns() : 0;
  record_free(context, process, pid_tgid);
  if (has_figures(process)) {
    add(&process->frees, 1);
    add(&process->program_time, bpf_ktime_get_ns() - begin);
  }
  return 0;
}

SEC("uprobe")
int probe_start(struct pt_regs* context) {
  __u64 control = PT_REGS_PARM1(context);
  /* Read here and now: sunk into the branch, the load becomes one that the verifier refuses (modified ctx pointer). */
  asm volatile("" : "+r"(control));
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct heaptap_process* process = find_or_enter(tgid);
  if (process)
    send_event_about(HEAPTAP_EVENT_START, tgid, process->id, control, (const void*)control,
                     sizeof(struct heaptap_control), NULL);
  return 0;
}

static __always_inline void write_word(__u64 control, __u64 offset, __u32 word) {
  bpf_probe_write_user((void*)(control + offset), &word, sizeof(word));
}

/* At the same site as probe_start: says in the control block who records the process, and at which rate, before it has
 * allocated anything. A process that says it of some address else does this to its own memory, as it could itself. */
static __always_inline void write_control(__u64 control) {
  const struct heaptap_settings* of_all = read_settings();
  if (!of_all || !of_all->everyone || of_all->collector_pid == 0) return;
  struct heaptap_control block;
  if (bpf_probe_read_user(&block, sizeof(block), (const void*)control)) return;
  /* Another collector's, or a parent's. */
  if (!is_control_block(&block) || block.collector_pid != 0) return;
  write_word(control, offsetof(struct heaptap_control, collector_lg_sample), of_all->lg_sample);
  write_word(control, offsetof(struct heaptap_control, collector_follows), 1);
  write_word(control, offsetof(struct heaptap_control, collector_pid), of_all->collector_pid);
}

SEC("uprobe")
int take_control(struct pt_regs* context) {
  __u64 control = PT_REGS_PARM1(context);
  asm volatile("" : "+r"(control)); /* as in probe_start */
  write_control(control);
  /* Nothing is there unless probe_any called this. */
  bpf_tail_call(context, &programs, HEAPTAP_PROBE_START_SITE);
  return 0;
}

/* All probe sites of a file by one link, which goes with one wait of the kernel's; the cookie says which site it is. */
SEC("uprobe")
int probe_any(struct pt_regs* context) {
  bpf_tail_call(context, &programs, (__u32)bpf_get_attach_cookie(context));
  return 0;
}

static __always_inline void begin_triggers(struct heaptap_process* process, const struct heaptap_process* origin) {
  process->first_high_water = origin->first_high_water;
  process->high_water_at = origin->first_high_water ? origin->first_high_water : NEVER;
  process->high_water_percent = origin->high_water_percent;
  process->interval_step = origin->interval_step;
  process->interval_at = origin->interval_step ? origin->interval_step : NEVER;
  process->max_live = origin->max_live;
  process->max_tallies = origin->max_tallies;
}

/* Beside the event: the event may find no room, or a collector that dies with it in hand. */
static __always_inline int note_unnoticed(struct heaptap_process* ended, __u32 tgid, __u32 flag) {
  ended->flags |= flag;
  ended->parent_tgid = tgid; /* the key of `processes` that it had */
  __u64 id = ended->id;
  return bpf_map_update_elem(&unnoticed, &id, ended, BPF_ANY);
}

/* New books for the process. Only one of several threads that ask at once begins them. */
static __always_inline void reset(__u32 tgid, __u64 request) {
  /* A vfork child has no books to reset. */
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || process->flags & HEAPTAP_PROCESS_SHARES_PARENT) return;
  /* Whoever does it without end must not take the room that other processes' events need. */
  if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / 2) {
    lose(process->id, HEAPTAP_LOSS_EVENTS_FULL, 0);
    return;
  }
  struct heaptap_process ended = *process;
  __u64 id = make_process_id();
  if (__sync_val_compare_and_swap(&process->id, ended.id, id) != ended.id) return;
  process->live_weight = 0;
  process->allocated_weight = 0;
  process->peak_weight = 0;
  process->live_objects = 0;
  process->tallies = 0;
  begin_triggers(process, &ended);
  /* If that is lost all the same, the collector finds another process id under the PID. */
  send_event_about(HEAPTAP_EVENT_RESET, tgid, id, ended.id, (const void*)request, sizeof(struct heaptap_dump_request),
                   NULL);
}

SEC("uprobe")
int probe_dump(struct pt_regs* context) {
  __u64 request = PT_REGS_PARM1(context);
  asm volatile("" : "+r"(request)); /* as in probe_start */
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct heaptap_process* process = find_or_enter(tgid);
  struct heaptap_dump_request asked = {};
  bpf_probe_read_user(&asked, sizeof(asked), (const void*)request);
  if (asked.kind == HEAPTAP_ASK_RESET) {
    reset(tgid, request);
    return 0;
  }
  if (asked.kind == HEAPTAP_ASK_RECORD) {
    if (process && asked.argument) __sync_fetch_and_or(&process->flags, HEAPTAP_PROCESS_RECORDS);
    if (process && !asked.argument) __sync_fetch_and_and(&process->flags, ~HEAPTAP_PROCESS_RECORDS);
    return 0;
  }
  if (asked.kind == HEAPTAP_ASK_TABLES && !process) return 0;
  /* Also from a process that is not recorded: it waits for an answer, and the collector says no at once. Whoever asks
   * without end must not take the room that others' events need: strangers get half of it, and the last quarter is for
   * what nobody can repeat at will. */
  __u64 size = bpf_ringbuf_query(&events, BPF_RB_RING_SIZE);
  if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > (process ? size / 4 * 3 : size / 2)) {
    if (process) lose(process->id, HEAPTAP_LOSS_EVENTS_FULL, 0);
    return 0;
  }
  send_event_about(HEAPTAP_EVENT_DUMP, tgid, process ? process->id : 0, request, (const void*)request,
                   sizeof(struct heaptap_dump_request), NULL);
  return 0;
}

SEC("uprobe")
int probe_thread_name(struct pt_regs* context) {
  __u64 name = PT_REGS_PARM1(context);
  asm volatile("" : "+r"(name)); /* as in probe_start */
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process) return 0;
  struct heaptap_thread_key key = {.process_id = process->id, .tid = (__u32)pid_tgid};
  struct heaptap_thread_name value = {.given = 1};
  if (bpf_probe_read_user_str(value.name, sizeof(value.name), (const void*)name) < 0) return 0;
  bpf_map_update_elem(&names, &key, &value, BPF_ANY);
  return 0;
}

/* Flags of children, and of a process's next image. */
#define INHERITED (HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED)

SEC("raw_tp/sched_process_fork")
int process_fork(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* parent = (struct task_struct*)context->args[0];
  struct task_struct* child = (struct task_struct*)context->args[1];
  __u32 parent_tgid = BPF_CORE_READ(parent, tgid);
  __u32 child_tgid = BPF_CORE_READ(child, tgid);
  struct heaptap_process* origin = bpf_map_lookup_elem(&processes, &parent_tgid);
  if (child_tgid == parent_tgid) {
    /* A thread, which does not run yet. */
    if (origin) __sync_fetch_and_add(&origin->threads_begun, 1);
    return 0;
  }
  if (!origin || origin->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  struct heaptap_process process = {
      .id = origin->id,
      .start_time = bpf_ktime_get_ns(),
      .parent_id = origin->id,
      .parent_tgid = parent_tgid,
      .flags = origin->flags & INHERITED,
  };
  begin_triggers(&process, origin);
  if (BPF_CORE_READ(parent, mm) == BPF_CORE_READ(child, mm)) {
    process.flags |= HEAPTAP_PROCESS_SHARES_PARENT;
    /* A vfork child that vforks shares with whom its parent shares. */
    if (origin->flags & HEAPTAP_PROCESS_SHARES_PARENT) process.parent_tgid = origin->parent_tgid;
  } else if (origin->flags & HEAPTAP_PROCESS_FOLLOW) {
    process.id = make_process_id();
  } else {
    return 0;
  }
  if (bpf_map_update_elem(&processes, &child_tgid, &process, BPF_ANY)) {
    lose(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
    return 0;
  }
  if (!(process.flags & HEAPTAP_PROCESS_SHARES_PARENT))
    send_event(HEAPTAP_EVENT_FORK, child_tgid, process.id, origin->id);
  return 0;
}

SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* task = (struct task_struct*)context->args[0];
  __u32 tgid = BPF_CORE_READ(task, tgid);
  struct heaptap_process* old = bpf_map_lookup_elem(&processes, &tgid);
  if (!old) return 0;

  __u64 ended_id = old->id;
  if (old->flags & HEAPTAP_PROCESS_IGNORED) {
    /* The next image may be one to record: it enters by itself. */
    bpf_map_delete_elem(&processes, &tgid);
    return 0;
  }
  if (old->flags & HEAPTAP_PROCESS_SHARES_PARENT) {
    ended_id = 0; /* the parent's books go on */
    if (!(old->flags & HEAPTAP_PROCESS_FOLLOW)) {
      bpf_map_delete_elem(&processes, &tgid);
      return 0;
    }
  }
  struct heaptap_process process = {
      .id = make_process_id(),
      .start_time = bpf_ktime_get_ns(),
      .parent_id = old->parent_id,
      .parent_tgid = old->parent_tgid,
      .flags = old->flags & INHERITED,
  };
  begin_triggers(&process, old);
  struct heaptap_process ended = *old;
  /* In place, since the kernel may have no memory for another entry. Nobody else uses this one: a thread that calls
   * exec is the only one of its process by now. */
  *old = process;
  int not_noted = ended_id ? note_unnoticed(&ended, tgid, HEAPTAP_PROCESS_EXECED) : 0;
  if (send_event(HEAPTAP_EVENT_EXEC, tgid, process.id, ended_id) && not_noted) lose(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
  return 0;
}

SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* task = (struct task_struct*)context->args[0];
  __u32 tgid = BPF_CORE_READ(task, tgid);
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process) return 0;
  struct heaptap_thread_key key = {.process_id = process->id, .tid = BPF_CORE_READ(task, pid)};
  struct heaptap_thread_name value = {};
  bpf_get_current_comm(value.name, sizeof(value.name));
  bpf_map_update_elem(&names, &key, &value, BPF_NOEXIST);
  /* Threads end one by one; the process ends with its last one. */
  if (BPF_CORE_READ(task, signal, live.counter) != 0) return 0;

  struct heaptap_process ended = *process;
  __u64 id = ended.id;
  __u32 flags = ended.flags;
  /* Two threads can both be the last; only one of them deletes. */
  if (bpf_map_delete_elem(&processes, &tgid)) return 0;
  if (flags & HEAPTAP_PROCESS_SHARES_PARENT) id = 0; /* the parent's books go on */
  int code = BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT ? BPF_CORE_READ(task, signal, group_exit_code)
                                                                    : BPF_CORE_READ(task, exit_code);
  ended.ended = code;
  ended.by_oom_kill = BPF_CORE_READ(task, signal, oom_mm) != NULL;
  __u64 argument = (__u32)code | (ended.by_oom_kill ? HEAPTAP_EXIT_BY_OOM_KILL : 0);
  int not_noted = id ? note_unnoticed(&ended, tgid, 0) : 0;
  struct heaptap_event* event = begin_event(HEAPTAP_EVENT_EXIT, tgid, id, argument);
  if (event) {
    event->peak_weight = ended.peak_weight;
    bpf_ringbuf_submit(event, 0);
  } else if (not_noted) {
    lose(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
  }
  return 0;
}

/* Somebody is about to map something, where nothing is yet or something was a moment ago: what was known of code there
 * holds no more. Newer kernels tell walks themselves (state_of_mappings). */
SEC("raw_tp/vm_unmapped_area")
int process_map(void* context) {
  struct heaptap_process* process = find_process(bpf_get_current_pid_tgid() >> 32);
  if (process) __sync_fetch_and_add(&process->mappings, 1);
  return 0;
}

/* Run by the collector. */
SEC("syscall")
int renew(struct heaptap_renew* argument) {
  struct heaptap_process* process = find_process(argument->tgid);
  if (process) __sync_fetch_and_add(&process->mappings, 1);
  return 0;
}

static long find_inode(struct task_struct* task, struct vm_area_struct* mapping, __u64* inode_address) {
  struct file* file = mapping->vm_file;
  if (file) *inode_address = (__u64)file->f_inode;
  return 0;
}

/* Run by the collector. */
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

/* Run by the collector. */
SEC("syscall")
int configure(struct heaptap_configure* argument) {
  __u32 tgid = argument->tgid;
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || process->id != argument->process_id || process->flags & HEAPTAP_PROCESS_SHARES_PARENT) return 0;
  process->max_live = argument->max_live;
  process->max_tallies = argument->max_tallies;
  if (process->first_high_water != argument->first_high_water ||
      process->high_water_percent != argument->high_water_percent) {
    process->first_high_water = argument->first_high_water;
    process->high_water_percent = argument->high_water_percent;
    process->high_water_at = argument->first_high_water ? argument->first_high_water : NEVER;
  }
  if (process->interval_step != argument->interval_step) {
    process->interval_step = argument->interval_step;
    process->interval_at = argument->interval_step ? process->allocated_weight + argument->interval_step : NEVER;
  }
  if (argument->flags & HEAPTAP_PROCESS_IGNORED) __sync_fetch_and_or(&process->flags, HEAPTAP_PROCESS_IGNORED);
  argument->done = 1;
  return 0;
}

static __always_inline void add_count(struct heaptap_count* sum, const struct heaptap_count* more) {
  add(&sum->objects, more->objects);
  add(&sum->bytes, more->bytes);
  add(&sum->weight, more->weight);
  add(&sum->weighted_objects, more->weighted_objects);
}

/* Run by the collector, for threads that have ended: no other program changes the tally of such a thread when none of
 * its samples lives. A new thread with the same number would count in the same tally. So the fold is refused if the
 * process has begun a thread since the collector saw that this one had ended. */
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
  if (process && process->id == key.process_id && has_figures(process)) add(&process->tallies, more);
  argument->done = 1;
  return 0;
}

/* Run by the collector. */
SEC("syscall")
int forgot(struct heaptap_forgot* argument) {
  __u64* all = counter(HEAPTAP_COUNTER_TALLIES);
  if (all) add(all, -argument->tallies);
  return 0;
}

struct sweep_state {
  __u64 deleted;
};

static long sweep_entry(void* map, const struct heaptap_live_key* key, struct heaptap_live* entry,
                        struct sweep_state* state) {
  __u64 process_id = key->process_id;
  if (!bpf_map_lookup_elem(&forgotten, &process_id) &&
      __sync_val_compare_and_swap(&entry->size, 0, HEAPTAP_LIVE_CLAIMED) != 0)
    return 0;
  if (bpf_map_delete_elem(map, key) == 0) state->deleted++;
  return 0;
}

/* Run by the collector: deletes entries of `live`, those without an object and those of forgotten processes. */
SEC("syscall")
int sweep(void* context) {
  struct sweep_state state = {};
  bpf_for_each_map_elem(&live, sweep_entry, &state, 0);
  __u64* entries = counter(HEAPTAP_COUNTER_LIVE_ENTRIES);
  if (entries) add(entries, -state.deleted);
  return 0;
}
