/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The maps, and the two things that every program does with them: counting a loss and sending an event.
 * bpf/books.h and bpf/unwind.h describe keys and values.
 *
 * All state is in named maps, none in .bss or .data, so that pinned maps outlive the collector.
 */
#ifndef HEAPTAP_MAPS_BPF_H_
#define HEAPTAP_MAPS_BPF_H_

#include "bpf/books.h"
#include "bpf/commands.h"
#include "bpf/events.h"
#include "bpf/kernel.h"
#include "bpf/unwind.h"
#include "bpf/users.bpf.h"

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_PROCESSES);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u32);
  __type(value, struct heaptap_process);
} processes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HEAPTAP_COUNTERS);
  __type(key, __u32);
  __type(value, __u64);
} counters SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_STACKS);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u64);
  __type(value, struct heaptap_stack);
} stacks SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_LIVE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct heaptap_live_key);
  __type(value, struct heaptap_live);
} live SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_TALLIES);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct heaptap_tally_key);
  __type(value, struct heaptap_tally);
} tallies SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_LOSSES);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct heaptap_loss_key);
  __type(value, struct heaptap_loss);
} losses SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_PROCESSES);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u64);
  __type(value, struct heaptap_process);
} unnoticed SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_PROCESSES);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u64);
  __type(value, __u8);
} forgotten SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_NAMES);
  __type(key, struct heaptap_thread_key);
  __type(value, struct heaptap_thread_name);
} names SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_NAMES);
  __type(key, struct heaptap_name_place);
  __type(value, struct heaptap_thread_key);
} name_places SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HEAPTAP_DEFAULT_RECORDS);
  __type(key, __u32);
  __type(value, struct heaptap_record);
} records SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct heaptap_settings);
} settings SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
  __uint(max_entries, HEAPTAP_MAX_GROUPS);
  __type(key, __u32);
  __type(value, __u32);
} groups SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, HEAPTAP_PROBES);
  __type(key, __u32);
  __type(value, __u32);
} programs SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, HEAPTAP_DEFAULT_EVENTS_BYTES);
} events SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_FILES);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct heaptap_file_key);
  __type(value, struct heaptap_file);
} files SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, HEAPTAP_DEFAULT_UNWIND_BYTES / 4096);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, struct heaptap_rows_key);
  __type(value, struct heaptap_rows);
} rows SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, HEAPTAP_DEFAULT_RAW_STACKS_BYTES);
} raw_stacks SEC(".maps");

/* Where the stack of a thread was at its latest copy in `raw_stacks`. */
struct thread_stack {
  __u64 begin;
  __u64 top;
};

struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 1024);
  __type(key, __u32); /* thread id */
  __type(value, struct thread_stack);
} thread_stacks SEC(".maps");

static __always_inline __u64* counter(__u32 which) { return bpf_map_lookup_elem(&counters, &which); }

static __always_inline void add(__u64* sum, __u64 value) { __sync_fetch_and_add(sum, value); }

static __always_inline const struct heaptap_settings* read_settings(void) {
  __u32 first = 0;
  return bpf_map_lookup_elem(&settings, &first);
}

/* `weight`: estimate of the bytes concerned; 0: unknown. */
__noinline int count_loss(__u64 process_id, enum heaptap_loss_reason reason, __u64 weight) {
  struct heaptap_loss_key key = {.process_id = process_id, .reason = reason};
  struct heaptap_loss* loss = bpf_map_lookup_elem(&losses, &key);
  if (!loss) {
    struct heaptap_loss none = {};
    bpf_map_update_elem(&losses, &key, &none, BPF_NOEXIST);
    loss = bpf_map_lookup_elem(&losses, &key);
  }
  if (!loss) {
    key.process_id = 0;
    loss = bpf_map_lookup_elem(&losses, &key);
  }
  if (loss) {
    add(&loss->events, 1);
    add(&loss->weight, weight);
  }
  return 0;
}

/* Whether the user of the calling process may have one more event in the ring, which is then counted for the user.
 * Calls nothing and needs 32 bytes of stack at most: it ends the longest chains of calls (tests/bpf_stack). */
__noinline int may_send(void) {
  struct user* user = user_at(find_user_slot());
  if (!user) return 1; /* never */
  const __u64 size = bpf_ringbuf_query(&events, BPF_RB_RING_SIZE);
  const __u64 used = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
  const __u64 consumed = bpf_ringbuf_query(&events, BPF_RB_CONS_POS);
  if (used >= size / 2 && !may_fill(&user->events, size, used, consumed, SHARE_OF_FREE)) return 0;
  count_filled(&user->events, size, bpf_ringbuf_query(&events, BPF_RB_PROD_POS), sizeof(struct heaptap_event));
  return 1;
}

/* Whether the calling process may send an event that it can repeat at will. `most`: its user's share of the ring, as a
 * multiple of the free bytes. */
__noinline int may_repeat(__u64 most) {
  struct user* user = user_at(find_user_slot());
  if (!user) return 1; /* never */
  const __u64 size = bpf_ringbuf_query(&events, BPF_RB_RING_SIZE);
  const __u64 used = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
  const __u64 consumed = bpf_ringbuf_query(&events, BPF_RB_CONS_POS);
  return used <= size / 2 || may_fill(&user->events, size, used, consumed, most);
}

/* Reserves an event, which the caller fills in and submits. Null: no room in `events`, or none left for the user
 * (counted). */
static __always_inline struct heaptap_event* begin_event(__u32 kind, __u32 tgid, __u64 process_id, __u64 argument) {
  struct heaptap_event* event = may_send() ? bpf_ringbuf_reserve(&events, sizeof(*event), 0) : NULL;
  if (!event) {
    /* When the first event of a process is lost, the collector does not know the id. */
    const __u32 begins = kind == HEAPTAP_EVENT_FORK || kind == HEAPTAP_EVENT_EXEC || kind == HEAPTAP_EVENT_ENTER;
    count_loss(begins ? 0 : process_id, HEAPTAP_LOSS_EVENTS_FULL, 0);
    __u64* lost = counter(HEAPTAP_COUNTER_EVENTS_LOST);
    if (lost) add(lost, 1);
    return NULL;
  }
  event->kind = kind;
  event->tgid = tgid;
  event->process_id = process_id;
  event->time = bpf_ktime_get_ns();
  event->argument = argument;
  event->peak_weight = 0;
  bpf_get_current_comm(event->comm, sizeof(event->comm));
  __builtin_memset(event->memory, 0, sizeof(event->memory));
  return event;
}

/* Sends an event with `size` bytes of the process's memory at `memory`, or with `file`; both may be null. A failed copy
 * leaves zeros. Returns 0, or -1 if there was no room (counted). */
static __always_inline int send_event_about(__u32 kind, __u32 tgid, __u64 process_id, __u64 argument,
                                            const void* memory, __u32 size, const struct heaptap_file_key* file) {
  struct heaptap_event* event = begin_event(kind, tgid, process_id, argument);
  if (!event) return -1;
  if (memory) bpf_probe_read_user(event->memory, size, memory);
  if (file) __builtin_memcpy(event->memory, file, sizeof(*file));
  bpf_ringbuf_submit(event, 0);
  return 0;
}

__noinline int send_event(__u32 kind, __u32 tgid, __u64 process_id, __u64 argument) {
  return send_event_about(kind, tgid, process_id, argument, NULL, 0, NULL);
}

#endif /* HEAPTAP_MAPS_BPF_H_ */
