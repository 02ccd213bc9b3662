/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * What the eBPF programs tell the collector: the ring buffer `events`.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, PIDs those of the first PID namespace, addresses those of the process.
 */
#ifndef HEAPTAP_EVENTS_H_
#define HEAPTAP_EVENTS_H_

#include <linux/types.h>

#include "allocator/include/heaptap/contract.h"
#include "bpf/books.h"

enum heaptap_event_kind {
  HEAPTAP_EVENT_START = 1,        /* argument: address of the control block */
  HEAPTAP_EVENT_DUMP = 2,         /* argument: address of the dump request */
  HEAPTAP_EVENT_FORK = 3,         /* a recorded process forked; argument: process id of the parent */
  HEAPTAP_EVENT_EXEC = 4,         /* argument: the process id that ended with the exec */
  HEAPTAP_EVENT_EXIT = 5,         /* argument: the status as in wait(2), + HEAPTAP_EXIT_BY_OOM_KILL */
  HEAPTAP_EVENT_HIGH_WATER = 6,   /* argument: the estimate of live bytes */
  HEAPTAP_EVENT_INTERVAL = 7,     /* argument: the estimate of all allocated bytes */
  HEAPTAP_EVENT_LIVE_FILLING = 8, /* `live` needs a sweep; argument: its entries */
  HEAPTAP_EVENT_TABLE_WANTED = 9, /* argument: an address in the code of the file */
  HEAPTAP_EVENT_RESET = 10,       /* the process began new books; argument: the process id of the old ones */
  HEAPTAP_EVENT_ENTER = 11,       /* a process got books because of heaptap_settings.everyone */
};

#define HEAPTAP_EXIT_BY_OOM_KILL (1ULL << 32)

struct heaptap_event {
  __u32 kind; /* enum heaptap_event_kind */
  __u32 tgid;
  /* HEAPTAP_NO_PROCESS if there are no books: DUMP of a process that is not recorded, EXIT of a process that shared its
   * parent's books or was ignored, EXEC of a process that gets no more books. */
  __u64 process_id;
  __u64 time;
  __u64 argument;
  __u64 peak_weight; /* EXIT, with figures: heaptap_figures.peak_weight */
  char comm[HEAPTAP_COMM_LENGTH];
  /* START: the control block. DUMP, RESET: the request. TABLE_WANTED: struct heaptap_file_key. Zeros if the memory
   * could not be read. The program copies the memory because the process may be gone when the collector reads the
   * event, or may make the collector wait. */
  __u8 memory[sizeof(struct heaptap_control)];
};

#endif /* HEAPTAP_EVENTS_H_ */
