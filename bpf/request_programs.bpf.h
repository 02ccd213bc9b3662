/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Programs on the requests of a process: dumps and other services (enum heaptap_ask_kind), names of its threads.
 */
#ifndef HEAPTAP_REQUEST_PROGRAMS_BPF_H_
#define HEAPTAP_REQUEST_PROGRAMS_BPF_H_

#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/names.bpf.h"
#include "bpf/process.bpf.h"

/* The process asks for something.
 *   attached  heaptap:dump(request)
 *   reads     the request; `settings`
 *   changes   `events`; in `processes`, a reset changes the process id and the figures, the record of samples a flag;
 *             `unnoticed` with a reset
 *   if full   processes that are not recorded may fill half of `events`, recorded ones three quarters; beyond that, the
 *             request of a recorded process is a counted loss, and the process gives up after its time limit
 *   cost      one look-up, a copy of the request, an event */
SEC("uprobe")
int probe_dump(struct pt_regs* context) {
  __u64 request = first_argument(context);
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  struct heaptap_process* process = find_or_enter(tgid);
  struct heaptap_dump_request asked = {};
  bpf_probe_read_user(&asked, sizeof(asked), (const void*)request);
  if (asked.kind == HEAPTAP_ASK_RESET) {
    reset_books(tgid, request);
    return 0;
  }
  if (asked.kind == HEAPTAP_ASK_RECORD) {
    if (process && asked.argument) __sync_fetch_and_or(&process->flags, HEAPTAP_PROCESS_RECORDS);
    if (process && !asked.argument) __sync_fetch_and_and(&process->flags, ~HEAPTAP_PROCESS_RECORDS);
    return 0;
  }
  if (asked.kind == HEAPTAP_ASK_LOST) {
    __u64 weight = asked.argument <= MAX_WEIGHT ? asked.argument : 0;
    if (process) count_loss(process->identity.id, HEAPTAP_LOSS_NO_MEMORY, weight);
    return 0;
  }
  if (asked.kind == HEAPTAP_ASK_TABLES && !process) return 0;
  /* Another collector may record it. */
  if (!process && !is_in_groups(read_settings())) return 0;
  /* A process that is not recorded waits for an answer too, and the collector refuses at once. */
  if (!may_repeat(process ? SHARE_FOR_REQUESTS : SHARE_FOR_OTHERS)) {
    if (process) count_loss(process->identity.id, HEAPTAP_LOSS_EVENTS_FULL, 0);
    return 0;
  }
  send_event_about(HEAPTAP_EVENT_DUMP, tgid, process ? process->identity.id : 0, request, (const void*)request,
                   sizeof(struct heaptap_dump_request), NULL);
  return 0;
}

/* The program has named the calling thread.
 *   attached  heaptap:thread_name(name)
 *   reads     the name; `processes`
 *   changes   `names`, `name_places`
 *   if full   the user's oldest name goes, or the least recently used name
 *   cost      four look-ups, a copy of the name, two or three changes of maps */
SEC("uprobe")
int probe_thread_name(struct pt_regs* context) {
  __u64 name = first_argument(context);
  __u64 pid_tgid = bpf_get_current_pid_tgid();
  struct heaptap_process* process = find_process(pid_tgid >> 32);
  if (!process) return 0;
  struct heaptap_thread_key key = {.process_id = process->identity.id, .tid = (__u32)pid_tgid};
  struct heaptap_thread_name value = {.given = 1};
  if (bpf_probe_read_user_str(value.name, sizeof(value.name), (const void*)name) < 0) return 0;
  make_room_for_name(process->identity.user, key.process_id, key.tid);
  bpf_map_update_elem(&names, &key, &value, BPF_ANY);
  return 0;
}

#endif /* HEAPTAP_REQUEST_PROGRAMS_BPF_H_ */
