/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * How to leave a frame: one rule of an unwind table, as the eBPF programs and the collector share it. Plain C.
 *
 * A rule says where the caller's RSP (the CFA, canonical frame address), RBP and RIP lie, from the registers RSP, RBP
 * and RIP of the frame. Terms: DWARF 5 section 6.4; register numbers: System V ABI for x86-64, figure 3.36.
 *
 *   bits  0-3   CFA kind         bits  8-15  RBP parameter, signed
 *   bits  4-5   RBP kind         bits 16-31  CFA parameter, signed
 *   bits  6-7   RA kind
 *
 * The rule 0 is "no rule".
 */
#ifndef HEAPTAP_UNWIND_RULE_H_
#define HEAPTAP_UNWIND_RULE_H_

#ifndef __bpf__
#include <linux/types.h>
#endif

/* Rules hold from the row's pc up to the next row's. Rows are sorted by pc. */
struct heaptap_unwind_row {
  __u32 pc; /* link-time address minus the table's base */
  __u32 rule;
};

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

static inline __u32 heaptap_unwind_rule(__u32 cfa_kind, __s32 cfa_parameter, __u32 rbp_kind, __s32 rbp_parameter,
                                        __u32 ra_kind) {
  return cfa_kind | rbp_kind << 4 | ra_kind << 6 | ((__u32)rbp_parameter & 0xff) << 8 | (__u32)cfa_parameter << 16;
}

/* The CFA parameter of the kinds that have two. */
static inline __s32 heaptap_unwind_pair(__s32 a, __s32 b) {
  return (__s32)(((__u32)a & 0xff) << 8 | ((__u32)b & 0xff));
}

static inline __u32 heaptap_unwind_cfa_kind(__u32 rule) { return rule & 15; }
static inline __u32 heaptap_unwind_rbp_kind(__u32 rule) { return rule >> 4 & 3; }
static inline __u32 heaptap_unwind_ra_kind(__u32 rule) { return rule >> 6 & 3; }
static inline __s32 heaptap_unwind_rbp_parameter(__u32 rule) { return (__s8)(rule >> 8); }
static inline __s32 heaptap_unwind_cfa_parameter(__u32 rule) { return (__s16)(rule >> 16); }
static inline __s32 heaptap_unwind_cfa_a(__u32 rule) { return (__s8)(rule >> 24); }
static inline __s32 heaptap_unwind_cfa_b(__u32 rule) { return (__s8)(rule >> 16); }

#endif /* HEAPTAP_UNWIND_RULE_H_ */
