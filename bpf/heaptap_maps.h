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

/* What a control block says of itself (HEAPTAP_CONTROL_MAGIC and _VERSION of the allocator's contract). */
#define HEAPTAP_CONTROL_HEAD_MAGIC 0x0070617470616568ULL
#define HEAPTAP_CONTROL_HEAD_VERSION 3

struct heaptap_control_head {
  __u64 magic;
  __u32 version;
  __u32 size;
};

/* Where in the control block those two are, and the word that says whether forked children are recorded. */
#define HEAPTAP_CONTROL_LG_SAMPLE_AT 32
#define HEAPTAP_CONTROL_COLLECTOR_PID_AT 36
#define HEAPTAP_CONTROL_COLLECTOR_FOLLOWS_AT 68

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

/* Bytes of an allocator's control block (struct heaptap_control) and of a dump request (struct heaptap_dump_request).
 * The kernel copies them when the probe fires: the process may be gone when the collector reads the event, or make it
 * wait for its memory. */
#define HEAPTAP_CONTROL_BYTES 128
#define HEAPTAP_DUMP_REQUEST_BYTES 64

struct heaptap_event {
  __u32 kind; /* enum heaptap_event_kind */
  __u32 tgid;
  __u64 process_id; /* 0: a process without books: DUMP from one that is not recorded, EXIT of one that shared some */
  __u64 time;
  __u64 argument;
  __u64 peak_weight; /* EXIT, with figures: the most that live_weight has been */
  char comm[HEAPTAP_COMM_LENGTH];
  /* START, DUMP: what the argument points to; zero if it cannot be read. RESET: the request. TABLE_WANTED: struct
   * heaptap_file_key. */
  __u8 memory[HEAPTAP_CONTROL_BYTES];
};

/*
 * Unwind tables. Code is known by the file that is mapped, whoever maps it; the programs find file and offset in the
 * kernel's own list of mappings, so that list is never late.
 *
 *   files       struct heaptap_file_key      -> struct heaptap_file
 *   rows        struct heaptap_rows_key      -> struct heaptap_rows
 *   raw_stacks  ring buffer                  <- struct heaptap_raw_stack
 *
 * A program that meets an unknown file enters it as WANTED and sends HEAPTAP_EVENT_TABLE_WANTED. Until its table is
 * there, stacks through its code go to raw_stacks as far as they are not unwound, and get an id of their own in the
 * books; the collector finishes them, and replaces the stack under that id.
 */

/* Numbers as the kernel has them: device is super_block.s_dev, which need not be what stat(2) says. */
struct heaptap_file_key {
  __u64 inode;
  __u32 device;
  __u32 generation; /* of the inode number */
};

/* The vDSO is no file; this is its key. */
#define HEAPTAP_VDSO_INODE (~0ULL)

enum heaptap_file_state {
  HEAPTAP_FILE_WANTED,        /* the collector has been asked for the table */
  HEAPTAP_FILE_LOADED,        /* the table is in `rows` */
  HEAPTAP_FILE_WITHOUT_TABLE, /* it has none: only frame pointers can help */
  HEAPTAP_FILE_OUTSIDE,       /* it has one, which is not in the kernel: raw stacks until that changes */
};

struct heaptap_file {
  __u32 state;  /* enum heaptap_file_state */
  __u32 table;  /* its number in `rows`, never used twice */
  __u32 levels; /* of the tree of nodes, 1 to HEAPTAP_ROW_LEVELS */
  __u32 reserved;
  __u64 base;      /* file offset that pc 0 of the rows stands for */
  __u64 last_used; /* when a program last looked for a row */
};

/* A rule holds from its row's pc up to the next row's. Rows are sorted by pc. */
struct heaptap_row {
  __u32 pc; /* offset from the base of the table */
  __u32 rule;
};

/* What makes an entry of `rows` 4096 bytes in the kernel, its own 56 included. */
#define HEAPTAP_ROWS_PER_NODE 504
#define HEAPTAP_ROW_LEVELS 3

/* Node 0 is the root. In a node of the lowest level the rows are the table's; in one above, each stands for a node of
 * the level below: its first pc, and in place of a rule its number. Places that are left over have pc ~0. */
struct heaptap_rows_key {
  __u32 table;
  __u32 node;
};

struct heaptap_rows {
  struct heaptap_row rows[HEAPTAP_ROWS_PER_NODE];
};

/* Values of heaptap_unwind_frame.others and .rbx_at that are no address. */
#define HEAPTAP_UNWIND_OTHERS_LOST 0
#define HEAPTAP_UNWIND_OTHERS_LIVE 1

/* The registers of a frame that a walk follows. */
struct heaptap_unwind_frame {
  __u64 rip;
  __u64 rsp;
  __u64 rbp;
  /* Where the other registers are: LIVE in the frame the walk begins in, LOST above it; for a frame that a signal
   * interrupted, the address of its registers in the signal frame. */
  __u64 others;
  __u64 rbx_at; /* where RBX was saved: LIVE, LOST, or an address */
};

#define HEAPTAP_CHUNK_BYTES 1024
/* A copy has as much of the stack as there is: up to 1 MiB while that leaves three quarters of the ring free, up to
 * 256 KiB while that leaves half of it, else up to 32 KiB. It begins anywhere in its first chunk. */
#define HEAPTAP_MOST_STACK_CHUNKS 1025
#define HEAPTAP_LARGE_STACK_CHUNKS 257
#define HEAPTAP_RAW_STACK_CHUNKS 33
#define HEAPTAP_CHUNKS_PER_WORD 64
#define HEAPTAP_MISSING_WORDS ((HEAPTAP_MOST_STACK_CHUNKS + HEAPTAP_CHUNKS_PER_WORD - 1) / HEAPTAP_CHUNKS_PER_WORD)

/* A walk that could not go on. `stack` is what it found, with the frame it stands in as the last; the rest is that
 * frame's registers and memory above its RSP. */
struct heaptap_raw_stack {
  __u64 process_id;
  __u64 stack_id; /* in the books, for this stack alone */
  __u64 time;
  struct heaptap_unwind_frame frame;
  __u64 registers[16]; /* by DWARF number; of this frame are those that its `others` and `rbx_at` call LIVE */
  __u32 is_return;     /* frame.rip is a return address */
  __u32 tgid;
  __u64 memory_begin; /* address */
  __u32 memory_bytes;
  __u32 reserved;
  /* Bit by bit the chunks that could not be read: large arrays that were never written, pages that are swapped out. */
  __u64 missing[HEAPTAP_MISSING_WORDS];
  struct heaptap_stack stack;
  /* The memory follows: as many chunks as there was reason for, the first memory_bytes of them valid unless missing. */
};

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

/*
 * An unwind rule says how to leave a frame: where the caller's RSP (the CFA, canonical frame address), RBP and RIP lie,
 * from the registers RSP, RBP and RIP of the frame. bpf/unwind_step.h is what it means, in code. Terms: DWARF 5 section
 * 6.4; register numbers: System V ABI for x86-64, figure 3.36.
 *
 *   bits  0-3   CFA kind         bits  7-9   RBX kind
 *   bits  4-5   RBP kind         bits 10-15  RBP parameter, signed
 *   bit   6     RA kind          bits 16-31  CFA parameter, signed
 *
 * RBX is followed because the dynamic linker's lazy binding (_dl_runtime_resolve) has its CFA there.
 *
 * The rule 0 is "no rule".
 */

/* CFA kinds. `p` is the CFA parameter; `a` its high byte, `b` its low byte, both signed. */
enum {
  HEAPTAP_CFA_NONE = 0,      /* no rule: the table does not cover this, or the rule cannot be encoded */
  HEAPTAP_CFA_END = 1,       /* the outermost frame: its return address is undefined */
  HEAPTAP_CFA_RSP = 2,       /* RSP + 8 * p */
  HEAPTAP_CFA_RBP = 3,       /* RBP + 8 * p */
  HEAPTAP_CFA_PLT = 4,       /* RSP + 8 + ((RIP & 15) >= 11 ? 8 : 0): a lazily bound PLT entry */
  HEAPTAP_CFA_PLT2 = 5,      /* the same with >= 10: PLT entries that begin with endbr64 */
  HEAPTAP_CFA_DEREF_RBP = 6, /* *(RBP + 8 * a) + 8 * b */
  HEAPTAP_CFA_DEREF_RSP = 7, /* *(RSP + 8 * a) + 8 * b */
  HEAPTAP_CFA_SIGNAL = 8,    /* a signal frame: a ucontext lies at RSP, its registers at RSP + 40 */
  HEAPTAP_CFA_REGISTER = 9,  /* the register (low 4 bits of a) + 8 * b */
};

/* RBP kinds. `p` is the RBP parameter. */
enum {
  HEAPTAP_RBP_SAME = 0,   /* unchanged */
  HEAPTAP_RBP_AT_CFA = 1, /* *(CFA + 8 * p) */
  HEAPTAP_RBP_LOST = 2,   /* undefined, or cannot be encoded */
  HEAPTAP_RBP_AT_RBP = 3, /* *(RBP + 8 * p): frames that realign the stack */
};

/* RA (return address) kinds. */
enum {
  HEAPTAP_RA_AT_CFA = 0,   /* *(CFA - 8) */
  HEAPTAP_RA_REGISTER = 1, /* in the register numbered by the RBP parameter; the RBP kind is SAME or LOST */
};

/* RBX kinds: in between, *(CFA - 8 - 8 * kind), where compilers save it. */
enum {
  HEAPTAP_RBX_SAME = 0,
  HEAPTAP_RBX_LOST = 7, /* undefined, or cannot be encoded */
};

/* RBX is SAME in it. */
static inline __u32 heaptap_unwind_rule(__u32 cfa_kind, __s32 cfa_parameter, __u32 rbp_kind, __s32 rbp_parameter,
                                        __u32 ra_kind) {
  return cfa_kind | rbp_kind << 4 | ra_kind << 6 | ((__u32)rbp_parameter & 0x3f) << 10 | (__u32)cfa_parameter << 16;
}

/* To be added to a rule. */
static inline __u32 heaptap_unwind_rbx(__u32 rbx_kind) { return rbx_kind << 7; }

/* The CFA parameter of the kinds that have two. */
static inline __s32 heaptap_unwind_pair(__s32 a, __s32 b) {
  return (__s32)(((__u32)a & 0xff) << 8 | ((__u32)b & 0xff));
}

static inline __u32 heaptap_unwind_cfa_kind(__u32 rule) { return rule & 15; }
static inline __u32 heaptap_unwind_rbp_kind(__u32 rule) { return rule >> 4 & 3; }
static inline __u32 heaptap_unwind_ra_kind(__u32 rule) { return rule >> 6 & 1; }
static inline __u32 heaptap_unwind_rbx_kind(__u32 rule) { return rule >> 7 & 7; }
static inline __s32 heaptap_unwind_rbp_parameter(__u32 rule) { return (__s32)(rule << 16) >> 26; }
static inline __s32 heaptap_unwind_cfa_parameter(__u32 rule) { return (__s16)(rule >> 16); }
static inline __s32 heaptap_unwind_cfa_a(__u32 rule) { return (__s8)(rule >> 24); }
static inline __s32 heaptap_unwind_cfa_b(__u32 rule) { return (__s8)(rule >> 16); }

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

#endif /* HEAPTAP_MAPS_H_ */
