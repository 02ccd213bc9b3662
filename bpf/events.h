/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What the eBPF programs tell the collector: the ring buffer `events`.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, PIDs those of the first PID namespace, addresses the process's own.
 */
#ifndef HEAPTAP_EVENTS_H_
#define HEAPTAP_EVENTS_H_

#include <linux/types.h>

#include "allocator/include/heaptap/contract.h"
#include "bpf/books.h"

enum heaptap_event_kind {
  HEAPTAP_EVENT_START = 1,        /* argument: address of the control block */
  HEAPTAP_EVENT_DUMP = 2,         /* argument: address of the dump request */
  HEAPTAP_EVENT_FORK = 3,         /* a recorded process made one; argument: the parent's process id */
  HEAPTAP_EVENT_EXEC = 4,         /* argument: the process id that ended with the exec */
  HEAPTAP_EVENT_EXIT = 5,         /* argument: exit code as wait(2) has it, + HEAPTAP_EXIT_BY_OOM_KILL */
  HEAPTAP_EVENT_HIGH_WATER = 6,   /* argument: the live estimate */
  HEAPTAP_EVENT_INTERVAL = 7,     /* argument: the estimate of all allocated bytes */
  HEAPTAP_EVENT_LIVE_FILLING = 8, /* `live` should be swept; argument: its entries */
  HEAPTAP_EVENT_TABLE_WANTED = 9, /* argument: an address of the file's code in the process */
  HEAPTAP_EVENT_RESET = 10,       /* the process began new books; argument: the process id that ended with it */
  HEAPTAP_EVENT_ENTER = 11,       /* a process without books got some, as heaptap_settings.everyone has it */
};

#define HEAPTAP_EXIT_BY_OOM_KILL (1ULL << 32)

struct heaptap_event {
  __u32 kind; /* enum heaptap_event_kind */
  __u32 tgid;
  __u64 process_id; /* 0: a process without books: DUMP from one that is not recorded, EXIT of one that shared some */
  __u64 time;
  __u64 argument;
  __u64 peak_weight; /* EXIT, with figures: the most that live_weight has been */
  char comm[HEAPTAP_COMM_LENGTH];
  /* START: the control block. DUMP, RESET: the request. Zero if it cannot be read. TABLE_WANTED: struct
   * heaptap_file_key. The kernel copies them when the probe fires: the process may be gone when the collector reads the
   * event, or make it wait for its memory. */
  __u8 memory[sizeof(struct heaptap_control)];
};

#endif /* HEAPTAP_EVENTS_H_ */
