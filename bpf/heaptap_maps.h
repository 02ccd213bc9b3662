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
 *   unnoticed  process id                    -> struct heaptap_process, ended when `events` had no room to say so
 *   events     ring buffer                   <- struct heaptap_event
 *
 * The books balance. For each process, when no program runs:
 *   sum over tallies of (allocated - freed) == sum over the objects in live, in number, bytes and weight;
 *   samples fired by the process            == objects allocated in tallies + events in losses that lose a sample.
 *
 * PIDs and TIDs are those of the first PID name space. Times are nanoseconds of CLOCK_MONOTONIC.
 * Sizes and weights are bytes. Addresses are the process's own.
 */
#ifndef HEAPTAP_MAPS_H_
#define HEAPTAP_MAPS_H_

#ifndef __bpf__
#include <linux/types.h>
#endif

/* jemalloc records up to 128 frames, its own among them. */
#define HEAPTAP_MAX_FRAMES 127

#define HEAPTAP_COMM_LENGTH 16

/* Bits of heaptap_process.flags. */
/* Children of this process are recorded too, each with books of its own. */
#define HEAPTAP_PROCESS_FOLLOW (1u << 0)
/* A vfork child: it shares its parent's memory and therefore its parent's process id, until it execs or exits. */
#define HEAPTAP_PROCESS_SHARES_PARENT (1u << 1)
/* In `unnoticed`: the image ended by an exec, not by an exit. */
#define HEAPTAP_PROCESS_EXECED (1u << 2)

struct heaptap_process {
  __u64 id;
  __u64 start_time;
  __u64 parent_id; /* process id of the parent; 0 if it is not recorded */
  __u32 parent_tgid;
  __u32 flags;
  /* Kept by the programs, but only if there is a trigger that needs them. */
  __u64 live_weight;      /* estimate of the live bytes */
  __u64 allocated_weight; /* estimate of all bytes ever allocated */
  /* Triggers, in the same estimates; ~0 is never. The program that passes one sends an event and sets the next:
   * high_water_at = live_weight + high_water_percent of it, interval_at += as many interval_step as it takes. */
  __u64 high_water_at;
  __u64 interval_at;
  /* Settings of the two, inherited by children; a step or first mark of 0 is never. */
  __u64 first_high_water;
  __u64 interval_step;
  __u32 high_water_percent;
  __u32 reserved;
};

/* How the walk of a stack ended. */
enum heaptap_stack_end {
  HEAPTAP_STACK_WHOLE = 0,     /* the walk ended where it found no further frame */
  HEAPTAP_STACK_TRUNCATED = 1, /* more frames than HEAPTAP_MAX_FRAMES */
  HEAPTAP_STACK_FAILED = 2,    /* no frame but the probe itself */
};

/* Addresses from the innermost: frame 0 is the probe site itself, all others are return addresses. */
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
  __u32 tid; /* of the thread that allocated */
  __u32 reserved;
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

enum heaptap_event_kind {
  HEAPTAP_EVENT_START = 1,        /* argument: address of the control block */
  HEAPTAP_EVENT_DUMP = 2,         /* argument: address of the dump request */
  HEAPTAP_EVENT_FORK = 3,         /* a recorded process made one; argument: the parent's process id */
  HEAPTAP_EVENT_EXEC = 4,         /* argument: the process id that ended with the exec */
  HEAPTAP_EVENT_EXIT = 5,         /* argument: exit code as wait(2) has it */
  HEAPTAP_EVENT_HIGH_WATER = 6,   /* argument: the live estimate */
  HEAPTAP_EVENT_INTERVAL = 7,     /* argument: the estimate of all allocated bytes */
  HEAPTAP_EVENT_LIVE_FILLING = 8, /* `live` should be swept; argument: its entries */
};

/* Numbers in the array `counters`. */
enum heaptap_counter {
  HEAPTAP_COUNTER_NEXT_PROCESS_ID, /* even ones are the programs', odd ones the collector's: neither has to ask */
  HEAPTAP_COUNTER_LIVE_ENTRIES,    /* of `live`, objects or not */
  HEAPTAP_COUNTER_SWEEP_AT,        /* entries of `live` at which HEAPTAP_EVENT_LIVE_FILLING is sent; ~0: was sent */
  HEAPTAP_COUNTER_EVENTS_LOST,     /* for which `events` had no room: the collector then looks at `processes` itself */
  HEAPTAP_COUNTERS,
};

/* Argument of the program `sweep`, which deletes entries of `live`: those of one process, or those without an object.
 */
struct heaptap_sweep {
  __u64 process_id; /* 0: all entries without an object */
};

/* Bytes of an allocator's control block (struct heaptap_control) and of a dump request (struct heaptap_dump_request).
 * The kernel copies them when the probe fires: the process may be gone when the collector reads the event, or make it
 * wait for its memory. */
#define HEAPTAP_CONTROL_BYTES 112
#define HEAPTAP_DUMP_REQUEST_BYTES 56

struct heaptap_event {
  __u32 kind; /* enum heaptap_event_kind */
  __u32 tgid;
  __u64 process_id; /* 0: a process without books: DUMP from one that is not recorded, EXIT of one that shared some */
  __u64 time;
  __u64 argument;
  char comm[HEAPTAP_COMM_LENGTH];
  __u8 memory[HEAPTAP_CONTROL_BYTES]; /* START, DUMP: what the argument points to; zero if it cannot be read */
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

#endif /* HEAPTAP_MAPS_H_ */
