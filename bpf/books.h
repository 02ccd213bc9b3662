/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The kernel's books: keys, values and settings that the eBPF programs and the collector share.
 *
 * Each recorded process image has a PROCESS ID, a number that is used once in the life of the maps (a PID may be used
 * again). The books are kept by process id:
 *
 *   processes  tgid                          -> struct heaptap_process
 *   stacks     stack id                      -> struct heaptap_stack
 *   live       {process id, address}         -> struct heaptap_live, an object or an entry without one
 *   tallies    {process id, stack id, tid}   -> struct heaptap_tally
 *   losses     {process id, reason}          -> struct heaptap_loss
 *   unnoticed  process id                    -> struct heaptap_process, ended, until the collector closes its books
 *   forgotten  process id                    -> 1, after its books were closed, until `live` has no object of it
 *   names      {process id, tid}             -> struct heaptap_thread_name
 *   records    number % capacity             -> struct heaptap_record
 *   settings   0                             -> struct heaptap_settings
 *   groups     0 to HEAPTAP_MAX_GROUPS - 1   -> control group of version 2
 *   owners     struct heaptap_owner_key      -> the user whose subordinate ids these are
 *   programs   enum heaptap_probe            -> the program that `probe_any` calls for a site
 *   areas      1 to HEAPTAP_AREA_SLOTS - 1   -> the memory of an area (contract.h), an array of pages
 *   events     ring buffer                   <- struct heaptap_event (bpf/events.h)
 *
 * Unwind tables have maps of their own (bpf/unwind.h).
 *
 * The books balance. For each process, when no program runs:
 *   sum over `tallies` of (allocated - freed) == sum over the objects in `live`, in number, bytes and weight;
 *   samples that the process fired == objects allocated in `tallies` + events of losses that lose a sample.
 *
 * PIDs and TIDs are those of the first PID namespace. Times are nanoseconds of CLOCK_MONOTONIC. Sizes and weights are
 * bytes. Addresses are those of the process.
 */
#ifndef HEAPTAP_BOOKS_H_
#define HEAPTAP_BOOKS_H_

#include <linux/types.h>

/* jemalloc records up to 128 frames, including its own. */
#define HEAPTAP_MAX_FRAMES 127
/* A deeper stack keeps this many innermost frames, then HEAPTAP_FRAMES_LEFT_OUT in place of an address, then the
 * outermost frames. */
#define HEAPTAP_INNER_FRAMES 80
#define HEAPTAP_FRAMES_LEFT_OUT 1
/* A walk goes no further, which bounds its time. */
#define HEAPTAP_MAX_WALK 1024

#define HEAPTAP_COMM_LENGTH 16

/* A named heap of a program (heaptap:heap_alloc) is a thread in the books. Its TID is this bit, which no other TID has,
 * and the id of its name. */
#define HEAPTAP_HEAP_TID (1u << 31)
#define HEAPTAP_HEAP_NAME_LENGTH 32 /* HEAPTAP_HEAP_NAME_BYTES */

/* Keys of `programs`: the cookies of probe sites. */
enum heaptap_probe {
  HEAPTAP_PROBE_DUMP_SITE,
  HEAPTAP_PROBE_THREAD_NAME_SITE,
  HEAPTAP_PROBE_CONTROL_SITE, /* of heaptap:start, if `take_control` is loaded */
  HEAPTAP_PROBE_START_SITE,
  HEAPTAP_PROBE_FREE_SITE,
  HEAPTAP_PROBE_HEAP_FREE_SITE,
  HEAPTAP_PROBE_FREES_SITE,
  HEAPTAP_PROBE_ALLOC_SITE,
  HEAPTAP_PROBE_HEAP_ALLOC_SITE,
  HEAPTAP_PROBE_SAMPLE_SITE, /* of otel_memory:alloc, in a file that has heaptap:frees too */
  HEAPTAP_PROBES,
};

/* Bits of heaptap_process.flags. */
/* Children of the process are recorded too, each in separate books. */
#define HEAPTAP_PROCESS_FOLLOW (1u << 0)
/* A vfork child. It shares the memory of its parent, and so its process id, until it execs or exits. */
#define HEAPTAP_PROCESS_SHARES_PARENT (1u << 1)
/* In `unnoticed`: the image ended with an exec. */
#define HEAPTAP_PROCESS_EXECED (1u << 2)
/* Its samples are entered in `records` too. */
#define HEAPTAP_PROCESS_RECORDS (1u << 3)
/* The programs keep its figures (struct heaptap_figures), and its limits apply. */
#define HEAPTAP_PROCESS_FIGURES (1u << 4)
/* It is not recorded, because a rule of the collector says so. Whether its children are recorded is decided anew. */
#define HEAPTAP_PROCESS_IGNORED (1u << 5)
/* A program entered it (HEAPTAP_EVENT_ENTER), not the collector. */
#define HEAPTAP_PROCESS_ENTERED (1u << 6)
/* In `unnoticed`: the books ended with a reset; the image goes on with new books. */
#define HEAPTAP_PROCESS_RESET (1u << 7)
/* Its beginning was seen: it has fired heaptap:start since then, or a recorded process has forked it. */
#define HEAPTAP_PROCESS_STARTED (1u << 8)

/* No process has this id. */
#define HEAPTAP_NO_PROCESS 0

/* Which process image this is. The id is new after a reset; the rest stays. */
struct heaptap_identity {
  __u64 id;
  __u64 start_time;
  __u64 parent_id;   /* process id of the parent; 0: the parent is not recorded */
  __u32 parent_tgid; /* in `unnoticed`: the PID of the process itself */
  __u32 user;        /* the slot of the user whose entry it is (bpf/users.bpf.h); 0: nobody's */
};

/* Totals of the books, kept by the programs for a process with HEAPTAP_PROCESS_FIGURES. A reset clears them. */
struct heaptap_figures {
  __u64 live_weight;      /* estimate of the live bytes */
  __u64 allocated_weight; /* estimate of all bytes ever allocated */
  __u64 peak_weight;      /* the highest live_weight so far */
  __u64 live_objects;     /* live samples */
  __u64 tallies;          /* entries of `tallies` */
};

/* What the recording cost a process with HEAPTAP_PROCESS_FIGURES, over all its books. */
struct heaptap_costs {
  __u64 allocations;  /* samples allocated, in the books or not */
  __u64 frees;        /* probes that passed on frees alone */
  __u64 program_time; /* nanoseconds in the programs on these probes, an estimate */
};

/* When a process with HEAPTAP_PROCESS_FIGURES sends HEAPTAP_EVENT_HIGH_WATER and HEAPTAP_EVENT_INTERVAL, in estimated
 * bytes; 0: never. Children inherit this. */
struct heaptap_triggers {
  __u64 first_high_water;
  __u64 interval_step;
  __u32 high_water_percent; /* from one high-water mark to the next */
  __u32 reserved;
};

#define HEAPTAP_NEVER (~0ULL)

/* The estimates at which the next events are due, or HEAPTAP_NEVER. The program that passes a mark sends the event and
 * sets the next mark: live_weight plus high_water_percent, or the next multiple of interval_step. */
struct heaptap_marks {
  __u64 high_water_at; /* of live_weight */
  __u64 interval_at;   /* of allocated_weight */
};

static inline __u64 heaptap_mark_after(__u64 from, __u64 step) { return step != 0 ? from + step : HEAPTAP_NEVER; }

/* The marks of books that are still empty. */
static inline struct heaptap_marks heaptap_first_marks(const struct heaptap_triggers* triggers) {
  struct heaptap_marks marks;
  marks.high_water_at = heaptap_mark_after(0, triggers->first_high_water);
  marks.interval_at = heaptap_mark_after(0, triggers->interval_step);
  return marks;
}

/* The shares of a process with HEAPTAP_PROCESS_FIGURES; 0: as many entries as there is room for. */
struct heaptap_limits {
  __u32 max_live;    /* objects in `live` */
  __u32 max_tallies; /* entries of `tallies`, and so of `stacks` */
};

struct heaptap_process {
  struct heaptap_identity identity;
  struct heaptap_figures figures;
  struct heaptap_costs costs;
  struct heaptap_triggers triggers;
  struct heaptap_marks marks;
  struct heaptap_limits limits;
  __u32 flags;             /* HEAPTAP_PROCESS_* */
  __u32 threads_begun;     /* number of threads started so far, without the first */
  __u32 mappings;          /* number of changes of the process's mappings that were noticed */
  __u32 ended;             /* in `unnoticed`: the exit code, as in HEAPTAP_EVENT_EXIT */
  __u32 by_oom_kill;       /* in `unnoticed`: 1: the OOM killer ended the process */
  __u16 stack_bytes;       /* how much of the stack a walk is expected to need; 0: unknown */
  __u16 area;              /* key of its first area in `areas`; 0: none */
  __u64 state_of_mappings; /* the kernel's own number for their state, at the latest look */
  __u64 pending;           /* address of the frees that the process holds back (struct heaptap_pending); 0: unknown */
};

/* Entries of `areas`, a mebibyte each. */
#define HEAPTAP_AREA_SLOTS 256

/* Control groups to which a recording of every process may be restricted. */
#define HEAPTAP_MAX_GROUPS 16

/* The settings of processes that the collector did not enter. */
struct heaptap_settings {
  /* 1: a process without books that fires a probe gets books with these flags, limits and triggers. */
  __u32 everyone;
  __u32 flags; /* HEAPTAP_PROCESS_* */
  struct heaptap_limits limits;
  struct heaptap_triggers triggers;
  /* Written into its control block if the program `take_control` is attached: */
  __u32 lg_sample;
  __u32 collector_pid; /* 0: nothing is written */
  /* Entries of `live` and `tallies` that processes with figures share. A process may have as many entries as are still
   * free, so no process gets all of them: k processes that always want more get 1 / (k + 1) each. 0: no such bound. */
  __u64 live_room;
  __u64 tallies_room;
  /* Entries of `processes`, of which one user may have 1 / HEAPTAP_USER_PROCESSES_PART. 0: no such bound. */
  __u64 processes_room;
  /* Entries of `groups`: only processes in one of these control groups, or below one, get books. 0: all processes. */
  __u32 groups;
  __u32 reserved;
};

/* How many process images one user may begin in about a second, where everyone is recorded; root: as many as it likes.
 * A machine that compiles starts some 2,000 programs a second, and each takes a fork and an exec. */
#define HEAPTAP_USER_IMAGES 4096
#define HEAPTAP_USER_PROCESSES_PART 2
/* One user may have 1 / HEAPTAP_USER_NAMES_PART of `names`. */
#define HEAPTAP_USER_NAMES_PART 4

/* This bit and a user's slot are the process id under which the images that the user could not begin are counted as
 * lost. */
#define HEAPTAP_LOSSES_OF_USER (1ULL << 63)

/* User ids that begin with the same bits, in network order, as BPF_MAP_TYPE_LPM_TRIE wants them. */
struct heaptap_owner_key {
  __u32 prefix_bits;
  __u32 uid;
};

/* How the walk of a stack ended. Every end but WHOLE leaves out the outer frames. */
enum heaptap_stack_end {
  HEAPTAP_STACK_WHOLE,       /* at the outermost frame */
  HEAPTAP_STACK_TRUNCATED,   /* the stack has more frames than HEAPTAP_MAX_WALK */
  HEAPTAP_STACK_NO_CODE,     /* a return address, or the probe, lies in no executable mapping */
  HEAPTAP_STACK_NO_RULE,     /* in code without readable unwind information, whose frame pointer leads nowhere */
  HEAPTAP_STACK_NO_MEMORY,   /* stack memory could not be read */
  HEAPTAP_STACK_NO_REGISTER, /* a rule needs a register whose value is unknown in the frame */
  HEAPTAP_STACK_STUCK,       /* the caller would lie below its callee */
  HEAPTAP_STACK_NO_ROOM,     /* at a table that is not loaded, and `raw_stacks` has no room */
  HEAPTAP_STACK_RAW_ENDED,   /* at the end of the copy of a raw stack */
  HEAPTAP_STACK_NO_TABLE,    /* at a table that was not loaded while the collector could keep the raw stack */
  HEAPTAP_STACK_UNFINISHED,  /* in a raw stack, which the collector has yet to finish */
  HEAPTAP_STACK_ENDS,
};

/* Innermost first. Frame 0 is the address of the probe site. A frame that a signal interrupted has the address of the
 * next instruction plus 1, so that the byte before it belongs to that instruction. All others are return addresses. */
struct heaptap_stack {
  __u32 count;
  __u32 end;  /* enum heaptap_stack_end */
  __u64 time; /* when it was first kept, in nanoseconds: its code is in the files that were mapped then; 0: this is
                 not certain */
  __u64 frames[HEAPTAP_MAX_FRAMES];
};

/* The stack id of samples whose stack is a loss; never a key of `stacks`. */
#define HEAPTAP_NO_STACK 0

/* Values of heaptap_live.serial that no object has. */
#define HEAPTAP_LIVE_NONE 0
#define HEAPTAP_LIVE_CLAIMED (~0ULL)

struct heaptap_live_key {
  __u64 process_id;
  __u64 address; /* XOR the tag of the heap */
};

/* When its object is freed, an entry stays without an object: the address is likely to be allocated again soon, and
 * changing an entry costs a third of deleting and inserting it. When the map fills up, entries without an object are
 * swept.
 *
 * A free names the serial number of its object. So frees that the process hands over late, or twice, change nothing if
 * the address has another object by now. */
struct heaptap_live {
  __u64 serial; /* HEAPTAP_LIVE_NONE; HEAPTAP_LIVE_CLAIMED: no object either, about to be deleted or filled in */
  __u64 size;
  __u64 weight;
  __u64 stack_id;
  __u64 time;   /* at most one tick of the kernel too early */
  __u32 tid;    /* of the thread that allocated */
  __u32 record; /* low bits of the number of its record; 0: none */
};

struct heaptap_tally_key {
  __u64 process_id;
  __u64 stack_id;
  __u32 tid; /* of the thread that allocated, or of the heap; frees count in the tally of the allocation */
  __u32 reserved;
};

/* Fraction bits of the estimates of numbers of objects, which are fixed point. */
#define HEAPTAP_OBJECT_FRACTION_BITS 16

/* The estimates of variances count in 2^16 square bytes, rounded up. At a sample every 512 KiB, 2^42 samples fit. */
#define HEAPTAP_VARIANCE_UNIT_BITS 16

/* A sample of `size` bytes that stands for `weight` bytes adds weight * (weight - size) to the variance of the sum of
 * weights: its estimate without bias (allocator/sampling/README.md). 0 where every allocation is a sample. */
static inline __u64 heaptap_variance(__u64 size, __u64 weight) {
  const __u32 half = HEAPTAP_VARIANCE_UNIT_BITS / 2;
  const __u64 whole_product = 1ULL << 32; /* below it, weight * weight has 64 bits */
  const __u64 most = 1ULL << (32 + half); /* below it, the rounded product has 64 bits */
  if (weight <= size) return 0;
  if (weight < whole_product)
    return (weight * (weight - size) + (1ULL << HEAPTAP_VARIANCE_UNIT_BITS) - 1) >> HEAPTAP_VARIANCE_UNIT_BITS;
  if (weight >= most) weight = most - 1;
  return (weight >> half) * ((weight > size ? weight - size : 0) >> half);
}

struct heaptap_count {
  __u64 objects;          /* samples */
  __u64 bytes;            /* their sizes */
  __u64 weight;           /* their weights: the estimate of all bytes */
  __u64 weighted_objects; /* sum of weight / size: the estimate of all objects, fixed point */
  __u64 variance;         /* sum of heaptap_variance: of the estimate of all bytes */
};

struct heaptap_tally {
  struct heaptap_count allocated;
  struct heaptap_count freed;
};

/* Names of threads: the name that the program gave, else the comm when the thread ended; and names of heaps. When a
 * user has its share, the user's oldest name is dropped; when the map is full, the least recently used name. */
struct heaptap_thread_key {
  __u64 process_id;
  __u32 tid;
  __u32 reserved;
};

/* A place for the key of one of a user's names. The places are used in turn, and hold the last names of the user, up to
 * its share. */
struct heaptap_name_place {
  __u32 user; /* its slot of `users` */
  __u32 number;
};

struct heaptap_thread_name {
  char name[HEAPTAP_HEAP_NAME_LENGTH];
  __u32 given; /* 1: by the program */
  __u32 reserved;
};

/* One of the latest samples of all processes with HEAPTAP_PROCESS_RECORDS. New records overwrite the oldest. */
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

/* Why something is missing in the books. */
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
  /* Two samples at one address: the free between them was missed. The first sample counts as freed. */
  HEAPTAP_LOSS_MISSED_FREE,
  /* No room in `events`. */
  HEAPTAP_LOSS_EVENTS_FULL,
  /* No room in `processes`: a process is not recorded. */
  HEAPTAP_LOSS_PROCESSES_FULL,
  /* No room in `files`: the code of a file counts as code without an unwind table. */
  HEAPTAP_LOSS_FILES_FULL,
  /* The sample is not in the books: the process has used up its share of `live` or `tallies`. */
  HEAPTAP_LOSS_LIVE_SHARE,
  HEAPTAP_LOSS_TALLIES_SHARE,
  /* The process was killed, and the kernel had discarded its memory with the frees that its threads had not handed
   * over: at most HEAPTAP_SLOT_FREES of each thread. They count as live. Before Linux 6.10 also: the process has called
   * exec, and had held a free back at any time before. */
  HEAPTAP_LOSS_FREES_UNREAD,
  /* The process began before its recording. The collector counts this, with the bytes that the allocator held then. */
  HEAPTAP_LOSS_BEGINNING,
  /* The sample is not in the books: the process had no memory for it (HEAPTAP_ASK_LOST). */
  HEAPTAP_LOSS_NO_MEMORY,
  /* A process is not recorded, or not yet: its user has used up the share of new processes per second, or of
   * `processes`. Each sample tries again. */
  HEAPTAP_LOSS_PROCESSES_SHARE,
  HEAPTAP_LOSS_REASONS,
};

/* Losses of no known process, and losses for which there was no room, count under process id 0, whose entries exist
 * before the programs run. */
struct heaptap_loss_key {
  __u64 process_id;
  __u32 reason; /* enum heaptap_loss_reason */
  __u32 reserved;
};

struct heaptap_loss {
  __u64 events;
  __u64 weight; /* estimate of the bytes concerned, as far as it is known */
};

/* Indices of the array `counters`. */
enum heaptap_counter {
  HEAPTAP_COUNTER_NEXT_PROCESS_ID, /* the programs take even numbers, the collector odd ones */
  HEAPTAP_COUNTER_LIVE_ENTRIES,    /* entries of `live`, with an object or without */
  HEAPTAP_COUNTER_SWEEP_AT,        /* entries of `live` at which HEAPTAP_EVENT_LIVE_FILLING is sent; ~0: it was sent */
  HEAPTAP_COUNTER_EVENTS_LOST,     /* events without room; the collector then compares `processes` itself */
  HEAPTAP_COUNTER_RAW_STACKS,      /* raw stacks sent so far; makes their ids unique */
  HEAPTAP_COUNTER_RECORDS,         /* records entered so far */
  HEAPTAP_COUNTER_TALLIES,         /* entries of `tallies` */
  HEAPTAP_COUNTER_NEXT_COLLECTOR_ID, /* the collector's next process id, for the next collector */
  HEAPTAP_COUNTER_TABLES,            /* unwind tables loaded so far; the number of the latest one */
  HEAPTAP_COUNTERS,
};

/* Default sizes of the maps, in entries; of the ring buffers, in bytes. A hash map takes 16 bytes for each entry that
 * it may get, and the rest as it fills (a live object about 120 bytes, a stack 1.1 KiB, a tally 150 bytes). */
#define HEAPTAP_DEFAULT_PROCESSES 16384
#define HEAPTAP_DEFAULT_STACKS 262144
#define HEAPTAP_DEFAULT_LIVE 4194304
#define HEAPTAP_DEFAULT_TALLIES 524288
#define HEAPTAP_DEFAULT_LOSSES 16384
#define HEAPTAP_DEFAULT_EVENTS_BYTES (1024 * 1024)
#define HEAPTAP_DEFAULT_RAW_STACKS_BYTES (32 * 1024 * 1024)
#define HEAPTAP_DEFAULT_FILES 16384
/* A range of ids takes some ten entries. The ids for which there is no room count as users of their own. */
#define HEAPTAP_DEFAULT_OWNERS 16384
/* These two are allocated whole at the start: 106 and 80 bytes an entry. */
#define HEAPTAP_DEFAULT_NAMES 16384
#define HEAPTAP_DEFAULT_RECORDS 16384
/* Bytes of kernel memory for unwind tables. */
#define HEAPTAP_DEFAULT_UNWIND_BYTES (256ULL * 1024 * 1024)

#endif /* HEAPTAP_BOOKS_H_ */
