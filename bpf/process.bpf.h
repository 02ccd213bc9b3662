/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * From a PID to the process whose books a program changes, and the beginning and the end of such books.
 */
#ifndef HEAPTAP_PROCESS_BPF_H_
#define HEAPTAP_PROCESS_BPF_H_

#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/users.bpf.h"

/* A forged weight must not overflow weight << HEAPTAP_OBJECT_FRACTION_BITS; no address space is larger. */
#define MAX_WEIGHT (1ULL << 47)

/* The process whose books hold the samples of `tgid`: for a vfork child, its parent. Null: not recorded. */
static __always_inline struct heaptap_process* find_process(__u32 tgid) {
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || !(process->flags & HEAPTAP_PROCESS_SHARES_PARENT)) return process;
  __u32 tgid_of_parent = process->identity.parent_tgid;
  struct heaptap_process* parent = bpf_map_lookup_elem(&processes, &tgid_of_parent);
  /* While the child lives on, the parent may end, or another of its threads may call exec. */
  return parent && parent->identity.id == process->identity.id ? parent : NULL;
}

static __always_inline __u64 make_process_id(void) {
  __u64* next = counter(HEAPTAP_COUNTER_NEXT_PROCESS_ID);
  return next ? __sync_fetch_and_add(next, 2) : 0;
}

/* Whether the calling process is in a control group that the recording is restricted to. */
static __always_inline int is_in_groups(const struct heaptap_settings* settings) {
  if (!settings || settings->groups == 0) return 1;
  for (__u32 i = 0; i < HEAPTAP_MAX_GROUPS && i < settings->groups; i++) {
    if (bpf_current_task_under_cgroup(&groups, i) == 1) return 1;
  }
  return 0;
}

/* Whether the user of the calling process may begin a process image; if not, that is a counted loss. The bound applies
 * only where everyone is recorded, since the users may not know of each other there. `entries`: the number of new
 * entries of `processes`. */
__noinline int may_begin_image(__u32 user, __u64 now, __u64 entries) {
  const struct heaptap_settings* defaults = read_settings();
  if (!defaults || !defaults->everyone || may_begin(user, now, defaults->processes_room, entries)) return 1;
  count_loss(HEAPTAP_LOSSES_OF_USER | user, HEAPTAP_LOSS_PROCESSES_SHARE, 0);
  return 0;
}

/* Enters a process, which has its user in identity.user. Returns 0, or a negative errno. */
static __always_inline long add_process(__u32 tgid, const struct heaptap_process* process) {
  const long error = bpf_map_update_elem(&processes, &tgid, process, BPF_NOEXIST);
  if (error == 0) count_processes(process->identity.user, 1);
  return error;
}

/* `user`: the user of the entry. Returns 0, or an error if there is no entry. */
static __always_inline long drop_process(__u32 tgid, __u32 user) {
  const long error = bpf_map_delete_elem(&processes, &tgid);
  if (error == 0) count_processes(user, -1ULL);
  return error;
}

/* The slot of the user for whom the calling process may be entered; negative: the settings want no books for it, or the
 * user has begun too many (counted). */
__noinline int may_enter(__u64 now) {
  const struct heaptap_settings* defaults = read_settings();
  if (!defaults || !defaults->everyone || !is_in_groups(defaults)) return -1;
  const __u32 user = find_user_slot();
  return may_begin_image(user, now, 1) ? (int)user : -1;
}

/* Opens books for the calling process, which begin `now`. Returns whether it has. */
__noinline int enter(__u32 tgid, __u32 user, __u64 now) {
  const struct heaptap_settings* defaults = read_settings();
  if (!defaults) return 0; /* never */
  struct heaptap_process process = {
      .identity = {.id = make_process_id(), .start_time = now, .user = user},
      .triggers = defaults->triggers,
      .marks = heaptap_first_marks(&defaults->triggers),
      .limits = defaults->limits,
      .flags = defaults->flags,
  };
  if (bpf_map_update_elem(&processes, &tgid, &process, BPF_NOEXIST) == 0) return 1;
  /* Another thread was faster to make an entry, or the entry says IGNORED, or there is no room. */
  if (!bpf_map_lookup_elem(&processes, &tgid)) count_loss(0, HEAPTAP_LOSS_PROCESSES_FULL, 0);
  return 0;
}

/* The calling process, with books if the settings want them. Null: not recorded. */
static __always_inline struct heaptap_process* find_or_enter(__u32 tgid) {
  struct heaptap_process* process = find_process(tgid);
  if (process) return process->flags & HEAPTAP_PROCESS_IGNORED ? NULL : process;
  const __u64 now = bpf_ktime_get_ns();
  const int user = may_enter(now);
  const int is_new = user >= 0 && enter(tgid, user, now);
  process = find_process(tgid);
  if (is_new) count_processes(user, 1);
  if (is_new && process) send_event(HEAPTAP_EVENT_ENTER, tgid, process->identity.id, 0);
  return process && !(process->flags & HEAPTAP_PROCESS_IGNORED) ? process : NULL;
}

/* Keeps the end of books in `unnoticed`, in addition to the event, which may find no room or be lost with the
 * collector that took it. Returns 0, or an error if there is no room. */
static __always_inline int save_ended(struct heaptap_process* ended, __u32 tgid, __u32 flag) {
  ended->flags |= flag;
  ended->identity.parent_tgid = tgid;
  __u64 id = ended->identity.id;
  return bpf_map_update_elem(&unnoticed, &id, ended, BPF_ANY);
}

/* Begins new books for a process that asked for it. When several threads ask at once, one of them begins the books. */
static __always_inline void reset_books(__u32 tgid, __u64 request) {
  /* A vfork child has no books to reset. */
  struct heaptap_process* process = bpf_map_lookup_elem(&processes, &tgid);
  if (!process || process->flags & HEAPTAP_PROCESS_SHARES_PARENT) return;
  if (!may_repeat(SHARE_FOR_OTHERS)) {
    count_loss(process->identity.id, HEAPTAP_LOSS_EVENTS_FULL, 0);
    return;
  }
  struct heaptap_process ended = *process;
  const __u64 ended_id = ended.identity.id;
  const __u64 id = make_process_id();
  if (__sync_val_compare_and_swap(&process->identity.id, ended_id, id) != ended_id) return;
  /* Without room, the event is the only report of the end. */
  save_ended(&ended, tgid, HEAPTAP_PROCESS_RESET);
  process->area = 0; /* its counts belong to the books that have ended */
  process->figures = (struct heaptap_figures){};
  process->marks = heaptap_first_marks(&process->triggers);
  /* If this event is lost, the collector still finds that the PID has another process id. */
  send_event_about(HEAPTAP_EVENT_RESET, tgid, id, ended_id, (const void*)request, sizeof(struct heaptap_dump_request),
                   NULL);
}

#endif /* HEAPTAP_PROCESS_BPF_H_ */
