/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Unwind tables and raw stacks. A table belongs to a file, and all processes that map the file share it. The programs
 * find the file and the offset of an address in the kernel's list of mappings, which is always up to date.
 *
 *   files       struct heaptap_file_key      -> struct heaptap_file
 *   rows        struct heaptap_rows_key      -> struct heaptap_rows
 *   raw_stacks  ring buffer                  <- struct heaptap_raw_stack
 *
 * A program that meets an unknown file enters it as WANTED and sends HEAPTAP_EVENT_TABLE_WANTED. Until the table is
 * loaded, a stack that reaches code of the file gets a unique id in the books, and the rest of it goes to `raw_stacks`.
 * The collector finishes such a stack and replaces the one under its id.
 */
#ifndef HEAPTAP_UNWIND_H_
#define HEAPTAP_UNWIND_H_

#include <linux/types.h>

#include "bpf/books.h"

/* The kernel's numbers: device is super_block.s_dev, which may differ from st_dev of stat(2). */
struct heaptap_file_key {
  __u64 inode;
  __u32 device;
  __u32 generation; /* of the inode number */
};

/* The key of the vDSO, which is not a file. */
#define HEAPTAP_VDSO_INODE (~0ULL)

enum heaptap_file_state {
  HEAPTAP_FILE_WANTED,        /* the collector has been asked for the table */
  HEAPTAP_FILE_LOADED,        /* the table is in `rows` */
  HEAPTAP_FILE_WITHOUT_TABLE, /* it has no table: walks follow frame pointers */
  HEAPTAP_FILE_OUTSIDE,       /* its table is not in the kernel: walks send raw stacks until it is */
};

struct heaptap_file {
  __u32 state;  /* enum heaptap_file_state */
  __u32 table;  /* the key in `rows`; no two tables ever have the same */
  __u32 levels; /* of the tree of nodes, 1 to HEAPTAP_ROW_LEVELS */
  __u32 reserved;
  __u64 base;      /* file offset of pc 0 of the rows */
  __u64 last_used; /* when a program last looked for a row */
};

/* A rule applies from the pc of its row up to the pc of the next row. Rows are sorted by pc. */
struct heaptap_row {
  __u32 pc; /* offset from the base of the table */
  __u32 rule;
};

/* With these, an entry of `rows` takes 4096 bytes in the kernel, including the entry's header of 56 bytes. */
#define HEAPTAP_ROWS_PER_NODE 504
#define HEAPTAP_ROW_LEVELS 3

/* Node 0 is the root. The nodes of the lowest level hold the rows of the table. In the nodes above, a row stands for a
 * node of the level below: its first pc, and its number in place of a rule. Unused rows have pc ~0. */
struct heaptap_rows_key {
  __u32 table;
  __u32 node;
};

struct heaptap_rows {
  struct heaptap_row rows[HEAPTAP_ROWS_PER_NODE];
};

/* Values of heaptap_unwind_frame.others and .rbx_at that are not addresses. */
#define HEAPTAP_UNWIND_OTHERS_LOST 0
#define HEAPTAP_UNWIND_OTHERS_LIVE 1

/* What a walk knows of a frame's rip: 0 where it is the next instruction, else these bits. */
#define HEAPTAP_RIP_RETURN 1 /* rip is a return address, so the rule of rip - 1 applies */
#define HEAPTAP_RIP_GUESS 2  /* rip was found by the frame pointer of code without a rule */

/* DWARF numbers of the registers that walks know by name. */
#define HEAPTAP_DWARF_RBX 3
#define HEAPTAP_DWARF_RBP 6
#define HEAPTAP_DWARF_RSP 7

/* The registers of a frame that a walk follows. */
struct heaptap_unwind_frame {
  __u64 rip;
  __u64 rsp;
  __u64 rbp;
  /* Where the other registers are. In the frame where the walk begins: LIVE. In a frame that a signal interrupted: the
   * address of its registers in the signal frame. Else: LOST. */
  __u64 others;
  __u64 rbx_at; /* where RBX was saved: LIVE, LOST, or an address */
};

#define HEAPTAP_CHUNK_BYTES 1024
/* A copy holds the stack up to its top: at most 1 MiB, and less in a ring that fills up, but at least 32 KiB. The stack
 * pointer lies anywhere in the first chunk. */
#define HEAPTAP_MOST_STACK_CHUNKS 1025
#define HEAPTAP_RAW_STACK_CHUNKS 33
#define HEAPTAP_CHUNKS_PER_WORD 64
#define HEAPTAP_MISSING_WORDS ((HEAPTAP_MOST_STACK_CHUNKS + HEAPTAP_CHUNKS_PER_WORD - 1) / HEAPTAP_CHUNKS_PER_WORD)

/* A walk that could not go on. `stack` has the frames found so far, the last of them the frame where the walk stopped;
 * the rest is the registers of that frame and the memory above its RSP. */
struct heaptap_raw_stack {
  __u64 process_id;
  __u64 stack_id; /* unique to this stack */
  __u64 time;
  struct heaptap_unwind_frame frame;
  __u64 registers[16]; /* by DWARF number; valid in this frame where its `others` and `rbx_at` are LIVE */
  __u32 rip_bits;      /* HEAPTAP_RIP_* of frame.rip */
  __u32 tgid;
  __u64 memory_begin; /* address */
  __u32 memory_bytes;
  __u32 reserved;
  /* A bit for each chunk that could not be read, for example in an array never written, or in a page that is swapped
   * out. */
  __u64 missing[HEAPTAP_MISSING_WORDS];
  struct heaptap_stack stack;
  /* The chunks follow; the first memory_bytes of them are valid unless missing. */
};

/*
 * An unwind rule says how to leave a frame: how to find the caller's RSP (the CFA, canonical frame address), RBP and
 * RIP from RSP, RBP and RIP of the frame. bpf/unwind_step.h is its meaning in code. Terms: DWARF 5 section 6.4;
 * register numbers: System V ABI for x86-64, figure 3.36.
 *
 *   bits  0-3   CFA kind         bits  7-9   RBX kind
 *   bits  4-5   RBP kind         bits 10-15  RBP parameter, signed
 *   bit   6     RA kind          bits 16-31  CFA parameter, signed
 *
 * RBX is followed because the CFA of the dynamic linker's lazy binding (_dl_runtime_resolve) is based on it.
 *
 * The rule 0 is "no rule": walks follow the frame pointer. Code that has a rule of another form need not have a frame
 * pointer, so walks end there. HEAPTAP_RULE_FRAME_POINTER is the rule of code that always has a frame pointer.
 */

/* CFA kinds. `p` is the CFA parameter; `a` its high byte, `b` its low byte, both signed. */
enum {
  HEAPTAP_CFA_NONE = 0,      /* no rule: the address is not covered */
  HEAPTAP_CFA_END = 1,       /* the outermost frame: its return address is undefined; see HEAPTAP_RULE_START */
  HEAPTAP_CFA_RSP = 2,       /* RSP + 8 * p */
  HEAPTAP_CFA_RBP = 3,       /* RBP + 8 * p */
  HEAPTAP_CFA_PLT = 4,       /* RSP + 8 + ((RIP & 15) >= 11 ? 8 : 0): a lazily bound PLT entry */
  HEAPTAP_CFA_PLT2 = 5,      /* the same with >= 10: PLT entries that begin with endbr64 */
  HEAPTAP_CFA_DEREF_RBP = 6, /* *(RBP + 8 * a) + 8 * b */
  HEAPTAP_CFA_DEREF_RSP = 7, /* *(RSP + 8 * a) + 8 * b */
  HEAPTAP_CFA_SIGNAL = 8,    /* a signal frame: a ucontext lies at RSP, its registers at RSP + 40 */
  HEAPTAP_CFA_REGISTER = 9,  /* the register (low 4 bits of a) + 8 * b */
  /* These five kinds, for functions with large arrays: RSP + 8 * (HEAPTAP_FAR_WORDS + 65536 * (kind - 10) + p), where p
   * is unsigned. Up to 2.75 MiB. */
  HEAPTAP_CFA_FAR = 10,
  HEAPTAP_CFA_LAST_FAR = 14,
  HEAPTAP_CFA_UNKNOWN = 15, /* the address is covered, but its rule cannot be encoded */
};

/* The first distance from RSP, in words, that does not fit into the parameter of HEAPTAP_CFA_RSP. */
#define HEAPTAP_FAR_WORDS 32768
#define HEAPTAP_FAR_WORDS_PER_KIND 65536

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

/* RBX kinds. The kinds between these two: *(CFA - 8 - 8 * kind), where compilers save it. */
enum {
  HEAPTAP_RBX_SAME = 0,
  HEAPTAP_RBX_LOST = 7, /* undefined, or cannot be encoded */
};

/* The RBX kind is SAME. */
static inline __u32 heaptap_unwind_rule(__u32 cfa_kind, __s32 cfa_parameter, __u32 rbp_kind, __s32 rbp_parameter,
                                        __u32 ra_kind) {
  return cfa_kind | rbp_kind << 4 | ra_kind << 6 | ((__u32)rbp_parameter & 0x3f) << 10 | (__u32)cfa_parameter << 16;
}

/* The bits of an RBX kind, to be added to a rule. */
static inline __u32 heaptap_unwind_rbx(__u32 rbx_kind) { return rbx_kind << 7; }

/* The CFA parameter of the kinds with `a` and `b`. */
static inline __s32 heaptap_unwind_pair(__s32 a, __s32 b) {
  return (__s32)(((__u32)a & 0xff) << 8 | ((__u32)b & 0xff));
}

static inline __u32 heaptap_unwind_cfa_kind(__u32 rule) { return rule & 15; }
static inline __u32 heaptap_unwind_rbp_kind(__u32 rule) { return rule >> 4 & 3; }
static inline __u32 heaptap_unwind_ra_kind(__u32 rule) { return rule >> 6 & 1; }
static inline __u32 heaptap_unwind_rbx_kind(__u32 rule) { return rule >> 7 & 7; }
static inline __s32 heaptap_unwind_rbp_parameter(__u32 rule) { return (__s32)(rule << 16) >> 26; }
static inline __s32 heaptap_unwind_cfa_parameter(__u32 rule) { return (__s16)(rule >> 16); }
/* The distance of the CFA from RSP, in words. REQUIRES: the kind is one of the five FAR kinds. */
static inline __u32 heaptap_unwind_far_words(__u32 rule) {
  return HEAPTAP_FAR_WORDS + HEAPTAP_FAR_WORDS_PER_KIND * (heaptap_unwind_cfa_kind(rule) - HEAPTAP_CFA_FAR) +
         (rule >> 16);
}
static inline __s32 heaptap_unwind_cfa_a(__u32 rule) { return (__s8)(rule >> 24); }
static inline __s32 heaptap_unwind_cfa_b(__u32 rule) { return (__s8)(rule >> 16); }

/* The rule of a return address at which a function begins: a rule covers the address, and none covers the byte before
 * it. A call does not leave such a return address. The stack was made to begin in this function, as makecontext(3)
 * does, unless the address was found by a frame pointer, which may have read a pointer to a function. */
#define HEAPTAP_RULE_START heaptap_unwind_rule(HEAPTAP_CFA_END, 1, HEAPTAP_RBP_SAME, 0, HEAPTAP_RA_AT_CFA)
/* The rule that applies where none covers the byte before a return address. `rule`: the rule of the address itself; a
 * bit above the lower 32 means that it is unknown. */
static inline __u32 heaptap_unwind_start_rule(__u64 rule) {
  return rule >> 32 == 0 && rule != 0 ? HEAPTAP_RULE_START : 0;
}

/* The rule of Go's code. The frame pointer may lead to another stack, at any address: a goroutine calls C on a stack of
 * the thread. */
#define HEAPTAP_RULE_FRAME_POINTER heaptap_unwind_rule(HEAPTAP_CFA_NONE, 1, HEAPTAP_RBP_SAME, 0, HEAPTAP_RA_AT_CFA)

#endif /* HEAPTAP_UNWIND_H_ */
