/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Programs on the life of a process: its start, its children, its next image, its end, its mappings.
 */
#ifndef HEAPTAP_LIFE_PROGRAMS_BPF_H_
#define HEAPTAP_LIFE_PROGRAMS_BPF_H_

#include "bpf/control.bpf.h"
#include "bpf/frees.bpf.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/names.bpf.h"
#include "bpf/process.bpf.h"

/* Flags of children, and of a process's next image. */
#define INHERITED (HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED)

/* A process image with an allocator has started, or a forked child of one.
 *   attached  heaptap:start(control block)
 *   reads     the control block; `settings`
 *   changes   `events`; `processes`: a flag, or the process enters
 *   if full   a counted loss; the collector looks at `processes` itself
 *   cost      once for each process: a few look-ups and a copy of the control block */
SEC("uprobe")
int probe_start(struct pt_regs* context) {
  __u64 control = first_argument(context);
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct heaptap_process* process = find_or_enter(tgid);
  if (!process) return 0;
  __sync_fetch_and_or(&process->flags, HEAPTAP_PROCESS_STARTED);
  send_event_about(HEAPTAP_EVENT_START, tgid, process->identity.id, control, (const void*)control,
                   sizeof(struct heaptap_control), NULL);
  return 0;
}

/* Says in the control block who records the process, and at which rate, before the process has allocated anything.
 *   attached  heaptap:start(control block), like probe_start, where the kernel lets programs write user memory
 *   reads     the control block; `settings`
 *   changes   three words of the control block
 *   if full   nothing is entered
 *   cost      once for each process: a copy of the control block and three writes */
SEC("uprobe")
int take_control(struct pt_regs* context) {
  write_control(first_argument(context));
  /* `programs` has no entry unless probe_any called this. */
  bpf_tail_call(context, &programs, HEAPTAP_PROBE_START_SITE);
  return 0;
}

/* A process has begun a thread, or forked a child.
 *   attached  the raw tracepoint sched_process_fork
 *   reads     parent and child; `processes`
 *   changes   `processes`: the parent's number of threads, or an entry for the child; `events`
 *   if full   the child is not recorded, a counted loss
 *   cost      for every fork on the machine one look-up; for a recorded process an atomic add (a thread), or an
 *             insertion and an event (a child) */
SEC("raw_tp/sched_process_fork")
int process_fork(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* parent = (struct task_struct*)context->args[0];
  struct task_struct* child = (struct task_struct*)context->args[1];
  __u32 parent_tgid = BPF_CORE_READ(parent, tgid);
  __u32 child_tgid = BPF_CORE_READ(child, tgid);
  struct heaptap_process* origin = bpf_map_lookup_elem(&processes, &parent_tgid);
  if (child_tgid == parent_tgid) {
    /* A new thread of the process. */
    if (origin) __sync_fetch_and_add(&origin->threads_begun, 1);
    return 0;
  }
  if (!origin || origin->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  const __u64 now = bpf_ktime_get_ns();
  struct heaptap_process process = {
      .identity = {.id = origin->identity.id,
                   .start_time = now,
                   .parent_id = origin->identity.id,
                   .parent_tgid = parent_tgid,
                   .user = find_user_slot()},
      .triggers = origin->triggers,
      .marks = heaptap_first_marks(&origin->triggers),
      .limits = origin->limits,
      .flags = origin->flags & INHERITED,
  };
  if (BPF_CORE_READ(parent, mm) == BPF_CORE_READ(child, mm)) {
    process.flags |= HEAPTAP_PROCESS_SHARES_PARENT;
    /* A vfork child that vforks shares the books that its parent shares. */
    if (origin->flags & HEAPTAP_PROCESS_SHARES_PARENT) process.identity.parent_tgid = origin->identity.parent_tgid;
  } else if (origin->flags & HEAPTAP_PROCESS_FOLLOW && is_in_groups(read_settings()) &&
             may_begin_image(process.identity.user, now, 1)) {
    process.identity.id = make_process_id();
    process.flags |= HEAPTAP_PROCESS_STARTED;
  } else {
    return 0;
  }
  /* This is the entry of an earlier process whose end was not noticed. */
  const struct heaptap_process* stale = bpf_map_lookup_elem(&processes, &child_tgid);
  if (stale) drop_process(child_tgid, stale->identity.user);
  if (add_process(child_tgid, &process)) {
    count_loss(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
    return 0;
  }
  if (!(process.flags & HEAPTAP_PROCESS_SHARES_PARENT))
    send_event(HEAPTAP_EVENT_FORK, child_tgid, process.identity.id, origin->identity.id);
  return 0;
}

/* A process is about to replace its memory: takes the frees that it holds back.
 *   attached  the raw tracepoint sched_prepare_exec, where the kernel has it (Linux 6.10)
 *   reads     `processes`; the memory of the process
 *   changes   the same as probe_free
 *   if full   nothing is entered
 *   cost      for every exec on the machine one look-up; for a recorded process the cost of probe_free per thread */
SEC("raw_tp/sched_prepare_exec")
int process_before_exec(void* context) {
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || process->flags & HEAPTAP_PROCESS_SHARES_PARENT) return 0;
  if (take_all_frees(process) == 0) process->pending = 0;
  return 0;
}

/* A process has called exec: the books of the old image end, and the books of the next image begin. A process that has
 * left the control groups of the recording gets no more books.
 *   attached  the raw tracepoint sched_process_exec
 *   reads     the task; `processes`
 *   changes   the entry of `processes` in place; `unnoticed`, `events`
 *   if full   the end is in `unnoticed` or in `events`; in neither, it is a counted loss
 *   cost      for every exec on the machine one look-up; for a recorded process an insertion and an event */
SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* task = (struct task_struct*)context->args[0];
  __u32 tgid = BPF_CORE_READ(task, tgid);
  struct heaptap_process* old = bpf_map_lookup_elem(&processes, &tgid);
  if (!old) return 0;

  __u64 ended_id = old->identity.id;
  if (old->flags & HEAPTAP_PROCESS_IGNORED) {
    /* The next image may be recorded; then it enters when it starts. */
    drop_process(tgid, old->identity.user);
    return 0;
  }
  const __u64 now = bpf_ktime_get_ns();
  const __u32 user = find_user_slot();
  const int is_shared = (old->flags & HEAPTAP_PROCESS_SHARES_PARENT) != 0;
  const int is_wanted = (!is_shared || old->flags & HEAPTAP_PROCESS_FOLLOW) && is_in_groups(read_settings()) &&
                        may_begin_image(user, now, user != old->identity.user);
  if (is_shared) {
    ended_id = 0; /* the parent's books go on */
    if (!is_wanted) {
      drop_process(tgid, old->identity.user);
      return 0;
    }
  }
  struct heaptap_process process = {
      .identity = {.id = is_wanted ? make_process_id() : HEAPTAP_NO_PROCESS,
                   .start_time = now,
                   .parent_id = old->identity.parent_id,
                   .parent_tgid = old->identity.parent_tgid,
                   .user = user},
      .triggers = old->triggers,
      .marks = heaptap_first_marks(&old->triggers),
      .limits = old->limits,
      .flags = old->flags & INHERITED,
  };
  if (ended_id && old->pending) count_loss(ended_id, HEAPTAP_LOSS_FREES_UNREAD, 0);
  struct heaptap_process ended = *old;
  /* In place, because the kernel may have no memory for another entry. No other program uses the entry: by now the
   * thread that called exec is the only one of its process. */
  if (is_wanted) {
    *old = process;
    count_processes(ended.identity.user, -1ULL);
    count_processes(user, 1);
  } else {
    drop_process(tgid, ended.identity.user);
  }
  int not_saved = ended_id ? save_ended(&ended, tgid, HEAPTAP_PROCESS_EXECED) : 0;
  if (send_event(HEAPTAP_EVENT_EXEC, tgid, process.identity.id, ended_id) && not_saved)
    count_loss(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
  return 0;
}

/* A thread has ended, and the process with the last one.
 *   attached  the raw tracepoint sched_process_exit
 *   reads     the task and its name; `processes`
 *   changes   `names`, `name_places`; with the last thread `processes`, `unnoticed`, `events`
 *   if full   the user's oldest name goes from `names`, or the least recently used name; the end is in
 *             `unnoticed` or in `events`; in neither, it is a counted loss
 *   cost      for every exiting thread on the machine one look-up; for a recorded process three look-ups and three
 *             changes of maps, and at its end two more changes and an event */
SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* task = (struct task_struct*)context->args[0];
  __u32 tgid = BPF_CORE_READ(task, tgid);
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process) return 0;
  struct heaptap_thread_key key = {.process_id = process->identity.id, .tid = BPF_CORE_READ(task, pid)};
  struct heaptap_thread_name value = {};
  bpf_get_current_comm(value.name, sizeof(value.name));
  make_room_for_name(process->identity.user, key.process_id, key.tid);
  bpf_map_update_elem(&names, &key, &value, BPF_NOEXIST);
  /* The process ends with its last thread. */
  if (BPF_CORE_READ(task, signal, live.counter) != 0) return 0;

  __u64 id = process->identity.id;
  /* Without books of its own, it shared its parent's books, which go on, or its books were closed when it became
   * ignored. */
  const int has_books = !(process->flags & (HEAPTAP_PROCESS_SHARES_PARENT | HEAPTAP_PROCESS_IGNORED));
  if (has_books && take_all_frees(process)) count_loss(id, HEAPTAP_LOSS_FREES_UNREAD, 0);
  struct heaptap_process ended = *process;
  /* Two threads may both see themselves as the last; one of them deletes. */
  if (drop_process(tgid, ended.identity.user)) return 0;
  if (!has_books) id = 0;
  int code = BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT ? BPF_CORE_READ(task, signal, group_exit_code)
                                                                    : BPF_CORE_READ(task, exit_code);
  ended.ended = code;
  ended.by_oom_kill = BPF_CORE_READ(task, signal, oom_mm) != NULL;
  __u64 argument = (__u32)code | (ended.by_oom_kill ? HEAPTAP_EXIT_BY_OOM_KILL : 0);
  int not_saved = id ? save_ended(&ended, tgid, 0) : 0;
  struct heaptap_event* event = begin_event(HEAPTAP_EVENT_EXIT, tgid, id, argument);
  if (event) {
    event->peak_weight = ended.figures.peak_weight;
    bpf_ringbuf_submit(event, 0);
  } else if (not_saved) {
    count_loss(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
  }
  return 0;
}

/* A process is about to map something, so cached rules for its code may become wrong. Newer kernels have a counter of
 * changes instead, which walks compare (state_of_mappings).
 *   attached  the raw tracepoint vm_unmapped_area
 *   reads     `processes`
 *   changes   the number of changes of mappings in `processes`
 *   if full   nothing is entered
 *   cost      for every new mapping on the machine one look-up; for a recorded process an atomic add */
SEC("raw_tp/vm_unmapped_area")
int process_map(void* context) {
  struct heaptap_process* process = find_process(bpf_get_current_pid_tgid() >> 32);
  if (process) __sync_fetch_and_add(&process->mappings, 1);
  return 0;
}

#endif /* HEAPTAP_LIFE_PROGRAMS_BPF_H_ */
