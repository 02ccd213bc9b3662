/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The kernel's books: keys, values and settings that the eBPF programs and the collector share.
 *
 * One recorded process image has one PROCESS ID, a number that is never used twice while the maps live (a PID may be).
 * All books are kept under it:
 *
 *   processes  tgid                          -> struct heaptap_process
 *   stacks     stack id                      -> struct heaptap_stack
 *   live       {process id, address}         -> struct heaptap_live, an object while its size is not 0
 *   tallies    {process id, stack id, tid}   -> struct heaptap_tally
 *   losses     {process id, reason}          -> struct heaptap_loss
 *   unnoticed  process id                    -> struct heaptap_process, ended, until the collector has closed its books
 *   forgotten  process id                    -> 1, while `live` may have objects of that process, whose books are
 *                                               closed
 *   names      {process id, tid}             -> struct heaptap_thread_name
 *   records    number % capacity             -> struct heaptap_record
 *   settings   0                             -> struct heaptap_settings
 *   programs   enum heaptap_probe            -> a program, if the program `probe_any` is attached for all
 *   events     ring buffer                   <- struct heaptap_event (bpf/events.h)
 *
 * Unwind tables have maps of their own (bpf/unwind.h).
 *
 * The books balance. For each process, when no program runs:
 *   sum over tallies of (allocated - freed) == sum over the objects in live, in number, bytes and weight;
 *   samples fired by the process            == objects allocated in tallies + events in losses that lose a sample.
 *
 * PIDs and TIDs are those of the first PID name space. Times are nanoseconds of CLOCK_MONOTONIC.
 * Sizes and weights are bytes. Addresses are the process's own.
 */
#ifndef HEAPTAP_BOOKS_H_
#define HEAPTAP_BOOKS_H_

#include <linux/types.h>

/* jemalloc records up to 128 frames, its own among them. */
#define HEAPTAP_MAX_FRAMES 127

#define HEAPTAP_COMM_LENGTH 16

/* Keys of `programs`: the cookies of probe sites. */
enum heaptap_probe {
  HEAPTAP_PROBE_DUMP_SITE,
  HEAPTAP_PROBE_THREAD_NAME_SITE,
  HEAPTAP_PROBE_CONTROL_SITE, /* of heaptap:start, where the program `take_control` could be loaded */
  HEAPTAP_PROBE_START_SITE,
  HEAPTAP_PROBE_FREE_SITE,
  HEAPTAP_PROBE_ALLOC_SITE,
  HEAPTAP_PROBES,
};

/* Bits of heaptap_process.flags. */
/* Children of this process are recorded too, each with books of its own. */
#define HEAPTAP_PROCESS_FOLLOW (1u << 0)
/* A vfork child: it shares its parent's memory and therefore its parent's process id, until it execs or exits. */
#define HEAPTAP_PROCESS_SHARES_PARENT (1u << 1)
/* In `unnoticed`: the image ended by an exec, not by an exit. */
#define HEAPTAP_PROCESS_EXECED (1u << 2)
/* Each sample is entered in `records` too. */
#define HEAPTAP_PROCESS_RECORDS (1u << 3)
/* Its figures are kept (struct heaptap_process), and it has shares. */
#define HEAPTAP_PROCESS_FIGURES (1u << 4)
/* It is not recorded, though others that enter by themselves are. Its children are asked about anew. */
#define HEAPTAP_PROCESS_IGNORED (1u << 5)
/* It entered by itself (HEAPTAP_EVENT_ENTER). */
#define HEAPTAP_PROCESS_ENTERED (1u << 6)

struct heaptap_process {
  __u64 id;
  __u64 start_time;
  __u64 parent_id; /* process id of the parent; 0 if it is not recorded */
  __u32 parent_tgid;
  __u32 flags;
  /* Figures, kept by the programs for those with HEAPTAP_PROCESS_FIGURES. */
  __u64 live_weight;      /* estimate of the live bytes */
  __u64 allocated_weight; /* estimate of all bytes ever allocated */
  __u64 peak_weight;      /* the most that live_weight has been */
  __u64 live_objects;     /* samples that live */
  __u64 tallies;          /* entries of `tallies` */
  __u64 allocations;      /* samples taken, whether or not they are in the books */
  __u64 frees;            /* of samples */
  __u64 program_time;     /* nanoseconds in programs on the two probes */
  /* Triggers, in the same estimates; ~0 is never. The program that passes one sends an event and sets the next:
   * high_water_at = live_weight + high_water_percent of it, interval_at += as many interval_step as it takes. */
  __u64 high_water_at;
  __u64 interval_at;
  /* Settings of the two, inherited by children; a step or first mark of 0 is never. */
  __u64 first_high_water;
  __u64 interval_step;
  __u32 high_water_percent;
  /* Shares, for those with figures; 0: as many as there is room for. */
  __u32 max_live;      /* objects in `live` */
  __u32 max_tallies;   /* entries of `tallies`, and so of `stacks` */
  __u32 ended;         /* in `unnoticed`: what HEAPTAP_EVENT_EXIT would have said */
  __u32 by_oom_kill;   /* in `unnoticed`: 1 if so */
  __u32 mappings;      /* counts changes of the process's mappings, as far as they were noticed */
  __u32 threads_begun; /* counts them, but for the first */
  __u32 reserved;
  __u64 state_of_mappings; /* in the kernel's terms, when that was last looked at */
};

/* Of processes that nobody entered. */
struct heaptap_settings {
  /* 1: a process without books that fires a probe gets some, as the rest of this says. */
  __u32 everyone;
  __u32 flags; /* HEAPTAP_PROCESS_* */
  __u32 max_live;
  __u32 max_tallies;
  __u64 first_high_water;
  __u64 interval_step;
  __u32 high_water_percent;
  /* For its control block, where the program `take_control` is attached: */
  __u32 lg_sample;
  __u32 collector_pid; /* 0: nothing is written */
  __u32 reserved;
  /* Room that processes with figures share, entries of `live` and `tallies`: each may have as many as are still free,
   * so that what is free is never one process's; of k that want without end each gets 1 / (k + 1). 0: no such bound. */
  __u64 live_room;
  __u64 tallies_room;
};

/* How the walk of a stack ended. All but WHOLE leave the outer frames out. */
enum heaptap_stack_end {
  HEAPTAP_STACK_WHOLE,       /* at the outermost frame */
  HEAPTAP_STACK_TRUNCATED,   /* there are more frames than HEAPTAP_MAX_FRAMES */
  HEAPTAP_STACK_NO_CODE,     /* a return address, or the probe, is in no executable mapping */
  HEAPTAP_STACK_NO_RULE,     /* in code without unwind information, and its frame pointer leads nowhere */
  HEAPTAP_STACK_NO_MEMORY,   /* stack memory could not be read */
  HEAPTAP_STACK_NO_REGISTER, /* the way out of a frame needs a register that is not known there */
  HEAPTAP_STACK_STUCK,       /* the caller would be below its callee */
  HEAPTAP_STACK_NO_ROOM,     /* at a table that was not loaded, with no room in raw_stacks */
  HEAPTAP_STACK_RAW_ENDED,   /* in a raw stack, where the copy ends */
  HEAPTAP_STACK_UNFINISHED,  /* in a raw stack that the collector has not finished yet */
  HEAPTAP_STACK_ENDS,
};

/* Addresses from the innermost: frame 0 is the probe site itself, a frame that a signal interrupted has the address of
 * the instruction that comes next, all others are return addresses. */
struct heaptap_stack {
  __u32 count;
  __u32 end; /* enum heaptap_stack_end */
  __u64 frames[HEAPTAP_MAX_FRAMES];
};

/* The stack id of samples whose stack could not be kept; never a key of `stacks`. */
#define HEAPTAP_NO_STACK 0

#define HEAPTAP_LIVE_CLAIMED (~0ULL)

struct heaptap_live_key {
  __u64 process_id;
  __u64 address;
};

/* An entry stays when its object is freed, with size 0, because the address will soon be allocated again, and changing
 * an entry costs a third of deleting and inserting one. Entries that wait in vain are swept when the map fills up. */
struct heaptap_live {
  __u64 size; /* 0: no object; HEAPTAP_LIVE_CLAIMED: no object, and about to be deleted or to become one */
  __u64 weight;
  __u64 stack_id;
  __u64 time;
  __u32 tid;    /* of the thread that allocated */
  __u32 record; /* low bits of the number of its record; 0: none */
};

struct heaptap_tally_key {
  __u64 process_id;
  __u64 stack_id;
  __u32 tid; /* of the thread that allocated: frees count where the allocation did */
  __u32 reserved;
};

/* Estimates of numbers of objects are kept as fixed point: this many fraction bits. */
#define HEAPTAP_OBJECT_FRACTION_BITS 16

struct heaptap_count {
  __u64 objects;          /* samples */
  __u64 bytes;            /* their sizes */
  __u64 weight;           /* their weighted bytes: the estimate of bytes */
  __u64 weighted_objects; /* sum of weight / size: the estimate of objects, fixed point */
};

struct heaptap_tally {
  struct heaptap_count allocated;
  struct heaptap_count freed;
};

/* Names of threads: what the program called them, or else their comm when they ended. Of very many, those that were
 * not used for longest are dropped: a name is an ornament. */
struct heaptap_thread_key {
  __u64 process_id;
  __u32 tid;
  __u32 reserved;
};

struct heaptap_thread_name {
  char name[HEAPTAP_COMM_LENGTH];
  __u32 given; /* 1: by the program */
  __u32 reserved;
};

/* One of the latest samples of processes with HEAPTAP_PROCESS_RECORDS. The oldest are overwritten. */
struct heaptap_record {
  __u64 number; /* counts the samples of all processes from 1; 0: empty, or being written */
  __u64 process_id;
  __u64 address;
  __u64 size;
  __u64 stack_id;
  __u64 time;
  __u64 free_stack_id;
  __u64 free_time; /* 0: live */
  __u32 tid;
  __u32 free_tid;
};

/* Why something is not in the books, or not as it should be. */
enum heaptap_loss_reason {
  HEAPTAP_NO_LOSS,
  /* The sample is not in the books. */
  HEAPTAP_LOSS_LIVE_FULL,    /* no room in `live` */
  HEAPTAP_LOSS_TALLIES_FULL, /* no room in `tallies` */
  HEAPTAP_LOSS_BAD_SAMPLE,   /* size 0, or a weight below the size */
  /* The sample is in the books, its stack is not. */
  HEAPTAP_LOSS_STACKS_FULL,     /* no room in `stacks` */
  HEAPTAP_LOSS_STACK_COLLISION, /* another stack has the same id */
  HEAPTAP_LOSS_SCRATCH_BUSY,    /* every scratch buffer of the CPU was claimed */
  /* Two samples at one address: the free between them was missed; the first was taken out as freed. */
  HEAPTAP_LOSS_MISSED_FREE,
  /* No room in `events`. */
  HEAPTAP_LOSS_EVENTS_FULL,
  /* No room in `processes`: a process is not recorded at all. */
  HEAPTAP_LOSS_PROCESSES_FULL,
  /* No room in `files`: code that counts as having no unwind table. */
  HEAPTAP_LOSS_FILES_FULL,
  /* The sample is not in the books: the process has its share of `live` or `tallies`. */
  HEAPTAP_LOSS_LIVE_SHARE,
  HEAPTAP_LOSS_TALLIES_SHARE,
  HEAPTAP_LOSS_REASONS,
};

/* Losses that belong to no process, or found no room of their own, stand under process id 0; those entries exist
 * before the programs run. */
struct heaptap_loss_key {
  __u64 process_id;
  __u32 reason; /* enum heaptap_loss_reason */
  __u32 reserved;
};

struct heaptap_loss {
  __u64 events;
  __u64 weight; /* estimate of the bytes concerned, where known */
};

/* Numbers in the array `counters`. */
enum heaptap_counter {
  HEAPTAP_COUNTER_NEXT_PROCESS_ID, /* even ones are the programs', odd ones the collector's: neither has to ask */
  HEAPTAP_COUNTER_LIVE_ENTRIES,    /* of `live`, objects or not */
  HEAPTAP_COUNTER_SWEEP_AT,        /* entries of `live` at which HEAPTAP_EVENT_LIVE_FILLING is sent; ~0: was sent */
  HEAPTAP_COUNTER_EVENTS_LOST,     /* for which `events` had no room: the collector then looks at `processes` itself */
  HEAPTAP_COUNTER_RAW_STACKS,      /* sent so far; makes their ids differ */
  HEAPTAP_COUNTER_RECORDS,         /* entered so far */
  HEAPTAP_COUNTER_TALLIES,         /* entries of `tallies` */
  HEAPTAP_COUNTER_NEXT_COLLECTOR_ID, /* the collector's next process id, for the collector after it */
  HEAPTAP_COUNTERS,
};

/* Sizes of the maps unless the collector sets others: entries, and bytes for the ring buffer. Maps but the ring buffer
 * take 16 bytes for each entry that they may get, and the rest as they fill (a live object about 120 bytes, a stack
 * 1.1 KiB, a tally 150 bytes). */
#define HEAPTAP_DEFAULT_PROCESSES 16384
#define HEAPTAP_DEFAULT_STACKS 262144
#define HEAPTAP_DEFAULT_LIVE 4194304
#define HEAPTAP_DEFAULT_TALLIES 524288
#define HEAPTAP_DEFAULT_LOSSES 16384
#define HEAPTAP_DEFAULT_EVENTS_BYTES (1024 * 1024)
#define HEAPTAP_DEFAULT_RAW_STACKS_BYTES (32 * 1024 * 1024)
#define HEAPTAP_DEFAULT_FILES 16384
/* These two are all there from the start, at 90 and 80 bytes an entry. */
#define HEAPTAP_DEFAULT_NAMES 16384
#define HEAPTAP_DEFAULT_RECORDS 16384
/* Bytes of kernel memory for unwind tables. */
#define HEAPTAP_DEFAULT_UNWIND_BYTES (256ULL * 1024 * 1024)

#endif /* HEAPTAP_BOOKS_H_ */
