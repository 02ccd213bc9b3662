/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Arguments of the programs that the collector runs. Each answers in its argument.
 */
#ifndef HEAPTAP_COMMANDS_H_
#define HEAPTAP_COMMANDS_H_

#include <linux/types.h>

#include "bpf/books.h"
#include "bpf/unwind.h"

/* Argument of the program `renew`, to be run when a process's executable mappings have changed. */
struct heaptap_renew {
  __u32 tgid;
  __u32 reserved;
};

/* Argument of the program `configure`: what a process shall have from now on. */
struct heaptap_configure {
  __u64 process_id; /* nothing happens if the process has another by now */
  __u32 tgid;
  __u32 flags; /* HEAPTAP_PROCESS_IGNORED or 0 */
  __u32 max_live;
  __u32 max_tallies;
  __u64 first_high_water;
  __u64 interval_step;
  __u32 high_water_percent;
  __u32 done; /* its answer: 1 */
};

/* Argument of the program `forgot`: entries of `tallies` that the collector has deleted. */
struct heaptap_forgot {
  __u64 tallies;
};

/* Argument of the program `fold`: adds a tally of a thread that has ended, and of which nothing lives, to the tally of
 * thread 0 on the same stack. */
struct heaptap_fold {
  struct heaptap_tally_key key;
  __u32 tgid;          /* of the process; 0: it has ended */
  __u32 done;          /* its answer: 1; 0 if something lives, or the thread may */
  __u32 threads_begun; /* of the process, before somebody saw that the thread has ended */
  __u32 reserved;
};

/* Argument of the program `identify`: which file the process that runs it has mapped at an address. */
struct heaptap_identify {
  __u64 address;
  struct heaptap_file_key file; /* its answer; inode 0: none */
  __u64 inode_address;          /* of the inode in the kernel's memory: no two have the same while both are in use */
};

#endif /* HEAPTAP_COMMANDS_H_ */
