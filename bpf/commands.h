/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Arguments of the programs that the collector runs (bpf/command_programs.bpf.h). A program answers in its argument.
 */
#ifndef HEAPTAP_COMMANDS_H_
#define HEAPTAP_COMMANDS_H_

#include <linux/types.h>

#include "bpf/books.h"
#include "bpf/unwind.h"

/* Argument of the program `invalidate_rules`, for a process whose executable mappings have changed. */
struct heaptap_invalidate_rules {
  __u32 tgid;
  __u32 reserved;
};

/* Argument of the program `configure`: the settings of a process from now on. */
struct heaptap_configure {
  __u64 process_id; /* nothing happens if the process has another by now */
  __u32 tgid;
  __u32 flags; /* HEAPTAP_PROCESS_IGNORED or 0 */
  struct heaptap_limits limits;
  struct heaptap_triggers triggers;
  __u32 done; /* its answer: 1 */
  __u32 reserved;
};

/* Argument of the program `give_area`: the first area of a process. */
struct heaptap_give_area {
  __u64 process_id; /* nothing happens if the process has another by now */
  __u32 tgid;
  __u32 slot; /* in `areas` */
  __u32 done; /* its answer: 1 */
  __u32 reserved;
};

/* Argument of the program `untrack`. */
struct heaptap_untrack {
  __u32 tgid;
  __u32 reserved;
};

/* Argument of the program `tallies_deleted`. */
struct heaptap_tallies_deleted {
  __u64 tallies; /* entries that the collector has deleted */
};

/* Argument of the program `fold`: the tally of a thread that has ended, none of whose samples is live. */
struct heaptap_fold {
  struct heaptap_tally_key key;
  __u32 tgid;          /* of the process; 0: it has ended */
  __u32 done;          /* its answer: 1; 0 if a sample or the thread may be live */
  __u32 threads_begun; /* heaptap_process.threads_begun, read before the collector saw that the thread had ended */
  __u32 reserved;
};

/* Argument of the program `take_frees`: frees that a process says it holds back. */
struct heaptap_take_frees {
  __u64 process_id; /* nothing happens if the process has another by now */
  __u32 tgid;
  __u32 count; /* at most HEAPTAP_SLOT_FREES */
  __u64 frees; /* address of the array of struct heaptap_free, in the collector */
};

/* Argument of the program `identify`: which file the process that runs it has mapped at an address. */
struct heaptap_identify {
  __u64 address;
  struct heaptap_file_key file; /* its answer; inode 0: there is no file */
  __u64 inode_address;          /* of the inode in the kernel's memory; inodes in use have different ones */
};

#endif /* HEAPTAP_COMMANDS_H_ */
