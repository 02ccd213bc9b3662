/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * One step up a stack by one rule: the meaning of the rules in bpf/unwind.h, in code. The eBPF programs
 * (bpf/memory.bpf.h) and the collector (userspace/unwind/finish.cc) share it, because both must find the same frames.
 *
 * Each of the two defines, before it includes this, how to read the memory and the registers of the walked thread.
 * `context` is the argument of heaptap_unwind_step(). Both are 0 on success:
 *
 *   HEAPTAP_UNWIND_READ(context, address, word)     the 8 bytes at a __u64 address, into the __u64 *word
 *   HEAPTAP_UNWIND_REGISTER(context, number, word)  a register of the frame the walk began in, by DWARF number (0-15)
 */
#ifndef HEAPTAP_UNWIND_STEP_H_
#define HEAPTAP_UNWIND_STEP_H_

#include "bpf/books.h"
#include "bpf/deep_stack.h"
#include "bpf/unwind.h"

#ifndef HEAPTAP_UNWIND_READ
#error "include bpf/memory.bpf.h, or define HEAPTAP_UNWIND_READ and HEAPTAP_UNWIND_REGISTER"
#endif

enum heaptap_unwind_result {
  HEAPTAP_UNWIND_CALLER,      /* one frame up; rip is a return address: its rule is the rule of rip - 1 */
  HEAPTAP_UNWIND_INTERRUPTED, /* one frame up, from a signal frame; rip is the next instruction: its rule is the rule of
                                 rip */
  HEAPTAP_UNWIND_END,         /* this was the outermost frame */
  HEAPTAP_UNWIND_NO_RULE,
  HEAPTAP_UNWIND_UNKNOWN,     /* there is a rule, but it cannot be encoded */
  HEAPTAP_UNWIND_NO_MEMORY,   /* the memory that the rule names cannot be read */
  HEAPTAP_UNWIND_NO_REGISTER, /* the rule needs a register whose value is unknown in this frame */
  HEAPTAP_UNWIND_STUCK,       /* the caller would lie no higher than its callee */
};

/* Indices into the 8-byte registers of struct sigcontext_64 by DWARF number, four bits each, lowest number first. */
#define HEAPTAP_SIGCONTEXT_INDICES 0x76543210fa89becdULL
#define HEAPTAP_SIGCONTEXT_RBX 11

/* A register by DWARF number; 0 on success. No compiler asks this way for RBP or RSP, but a hostile table may. */
static inline int heaptap_unwind_other(const struct heaptap_unwind_frame* frame, __u32 number, void* context,
                                       __u64* word) {
  __u64 others = frame->others;
  (void)context;
  number &= 15;
  if (number == HEAPTAP_DWARF_RBX && frame->rbx_at > HEAPTAP_UNWIND_OTHERS_LIVE)
    return HEAPTAP_UNWIND_READ(context, frame->rbx_at, word);
  if (number == HEAPTAP_DWARF_RBX) others = frame->rbx_at;
  if (others == HEAPTAP_UNWIND_OTHERS_LOST) return -1;
  if (others == HEAPTAP_UNWIND_OTHERS_LIVE) return HEAPTAP_UNWIND_REGISTER(context, number, word);
  return HEAPTAP_UNWIND_READ(context, others + 8 * (HEAPTAP_SIGCONTEXT_INDICES >> 4 * number & 15), word);
}

static inline enum heaptap_unwind_result heaptap_unwind_signal(struct heaptap_unwind_frame* frame, void* context) {
  __u64 registers = frame->rsp + 40;
  (void)context;
  if (HEAPTAP_UNWIND_READ(context, registers + 8 * 10, &frame->rbp)) return HEAPTAP_UNWIND_NO_MEMORY;
  if (HEAPTAP_UNWIND_READ(context, registers + 8 * 15, &frame->rsp)) return HEAPTAP_UNWIND_NO_MEMORY;
  if (HEAPTAP_UNWIND_READ(context, registers + 8 * 16, &frame->rip)) return HEAPTAP_UNWIND_NO_MEMORY;
  frame->others = registers;
  frame->rbx_at = registers + 8 * HEAPTAP_SIGCONTEXT_RBX;
  return HEAPTAP_UNWIND_INTERRUPTED;
}

/* Finds where RBX of the caller is. */
static inline void heaptap_unwind_follow_rbx(struct heaptap_unwind_frame* frame, __u32 rule, __u64 cfa) {
  __u32 kind = heaptap_unwind_rbx_kind(rule);
  if (kind == HEAPTAP_RBX_SAME) return;
  frame->rbx_at = kind == HEAPTAP_RBX_LOST ? HEAPTAP_UNWIND_OTHERS_LOST : cfa - 8 - 8 * (__u64)kind;
}

/*
 * Replaces `frame` by its caller, by the rule for its rip. After results other than CALLER and INTERRUPTED, the frame
 * is undefined. The walker bounds the number of steps: on a hostile stack, signal frames and frames of Go can lead in a
 * circle. Between them RSP only grows.
 */
static inline enum heaptap_unwind_result heaptap_unwind_step(struct heaptap_unwind_frame* frame, __u32 rule,
                                                             void* context) {
  __u64 cfa;
  __u64 rip;
  __u64 rbp = frame->rbp;
  switch (heaptap_unwind_cfa_kind(rule)) {
    case HEAPTAP_CFA_END:
      return HEAPTAP_UNWIND_END;
    case HEAPTAP_CFA_RSP:
      cfa = frame->rsp + 8 * (__s64)heaptap_unwind_cfa_parameter(rule);
      break;
    case HEAPTAP_CFA_RBP:
      cfa = frame->rbp + 8 * (__s64)heaptap_unwind_cfa_parameter(rule);
      break;
    case HEAPTAP_CFA_PLT:
      cfa = frame->rsp + 8 + ((frame->rip & 15) >= 11 ? 8 : 0);
      break;
    case HEAPTAP_CFA_PLT2:
      cfa = frame->rsp + 8 + ((frame->rip & 15) >= 10 ? 8 : 0);
      break;
    case HEAPTAP_CFA_DEREF_RBP:
      if (HEAPTAP_UNWIND_READ(context, frame->rbp + 8 * (__s64)heaptap_unwind_cfa_a(rule), &cfa))
        return HEAPTAP_UNWIND_NO_MEMORY;
      cfa += 8 * (__s64)heaptap_unwind_cfa_b(rule);
      break;
    case HEAPTAP_CFA_DEREF_RSP:
      if (HEAPTAP_UNWIND_READ(context, frame->rsp + 8 * (__s64)heaptap_unwind_cfa_a(rule), &cfa))
        return HEAPTAP_UNWIND_NO_MEMORY;
      cfa += 8 * (__s64)heaptap_unwind_cfa_b(rule);
      break;
    case HEAPTAP_CFA_SIGNAL:
      return heaptap_unwind_signal(frame, context);
    case HEAPTAP_CFA_REGISTER:
      if (heaptap_unwind_other(frame, (__u32)heaptap_unwind_cfa_a(rule), context, &cfa))
        return HEAPTAP_UNWIND_NO_REGISTER;
      cfa += 8 * (__s64)heaptap_unwind_cfa_b(rule);
      break;
    case HEAPTAP_CFA_NONE:
      return HEAPTAP_UNWIND_NO_RULE;
    case HEAPTAP_CFA_UNKNOWN:
      return HEAPTAP_UNWIND_UNKNOWN;
    default:
      cfa = frame->rsp + 8 * (__u64)heaptap_unwind_far_words(rule);
  }

  /* Caller and callee have the same RSP only if the return address was popped into a register. */
  if (cfa < frame->rsp || (cfa == frame->rsp && heaptap_unwind_ra_kind(rule) != HEAPTAP_RA_REGISTER))
    return HEAPTAP_UNWIND_STUCK;

  if (heaptap_unwind_ra_kind(rule) == HEAPTAP_RA_REGISTER) {
    if (heaptap_unwind_other(frame, (__u32)heaptap_unwind_rbp_parameter(rule), context, &rip))
      return HEAPTAP_UNWIND_NO_REGISTER;
  } else {
    if (HEAPTAP_UNWIND_READ(context, cfa - 8, &rip)) return HEAPTAP_UNWIND_NO_MEMORY;
  }

  switch (heaptap_unwind_rbp_kind(rule)) {
    case HEAPTAP_RBP_SAME:
      break;
    case HEAPTAP_RBP_AT_CFA:
      if (HEAPTAP_UNWIND_READ(context, cfa + 8 * (__s64)heaptap_unwind_rbp_parameter(rule), &rbp))
        return HEAPTAP_UNWIND_NO_MEMORY;
      break;
    case HEAPTAP_RBP_AT_RBP:
      if (HEAPTAP_UNWIND_READ(context, frame->rbp + 8 * (__s64)heaptap_unwind_rbp_parameter(rule), &rbp))
        return HEAPTAP_UNWIND_NO_MEMORY;
      break;
    default:
      rbp = 0;
  }
  frame->rip = rip;
  frame->rsp = cfa;
  frame->rbp = rbp;
  frame->others = HEAPTAP_UNWIND_OTHERS_LOST;
  heaptap_unwind_follow_rbx(frame, rule, cfa);
  return HEAPTAP_UNWIND_CALLER;
}

/* The end of user space on x86-64. With five-level page tables a program must ask for addresses above it. */
#define HEAPTAP_USER_END (1ULL << 47)

/* Like heaptap_unwind_step(), but by the frame pointer, for rules of the kind HEAPTAP_CFA_NONE. Returns CALLER, END, or
 * NO_RULE if RBP leads nowhere. */
static inline enum heaptap_unwind_result heaptap_unwind_frame_pointer(struct heaptap_unwind_frame* frame, __u32 rule,
                                                                      void* context) {
  __u64 at = frame->rbp;
  __u64 rbp;
  __u64 rip;
  (void)context;
  /* In the outermost frame RBP is 0 (System V ABI, 3.4.1). */
  if (at == 0) return HEAPTAP_UNWIND_END;
  if (at < frame->rsp && rule != HEAPTAP_RULE_FRAME_POINTER) return HEAPTAP_UNWIND_NO_RULE;
  if (at >= HEAPTAP_USER_END || (at & 7) != 0) return HEAPTAP_UNWIND_NO_RULE;
  if (HEAPTAP_UNWIND_READ(context, at, &rbp)) return HEAPTAP_UNWIND_NO_RULE;
  if (HEAPTAP_UNWIND_READ(context, at + 8, &rip)) return HEAPTAP_UNWIND_NO_RULE;
  /* Not a frame: RBP served another purpose. */
  if (rip == 0) return HEAPTAP_UNWIND_NO_RULE;
  frame->rip = rip;
  frame->rsp = at + 16;
  frame->rbp = rbp;
  frame->others = HEAPTAP_UNWIND_OTHERS_LOST;
  frame->rbx_at = HEAPTAP_UNWIND_OTHERS_LOST;
  return HEAPTAP_UNWIND_CALLER;
}

/* A call through a null pointer, or a jump to 0, ended in a signal. The call has pushed its return address. Returns 0,
 * or 1 if the address cannot be read. REQUIRES: a signal interrupted `frame`. */
static inline int heaptap_unwind_leave_null(struct heaptap_unwind_frame* frame, void* context) {
  (void)context;
  if (HEAPTAP_UNWIND_READ(context, frame->rsp, &frame->rip)) return 1;
  frame->rsp += 8;
  frame->others = HEAPTAP_UNWIND_OTHERS_LOST; /* of the caller, only RBP and RBX are known to be the same */
  return 0;
}

/* Adds the caller of `frame`, the last frame of `stack`, by `rule`, or by the frame pointer if the rule is 0. Returns 1
 * when the walk is over; stack->end says why. */
static inline int heaptap_unwind_add(struct heaptap_stack* stack, struct heaptap_unwind_frame* frame, __u32* rip_bits,
                                     __u32 rule, void* context) {
  __u32 count;
  __u32 guess = 0;
  enum heaptap_unwind_result result;
  if (rule == HEAPTAP_RULE_START && (*rip_bits & HEAPTAP_RIP_GUESS)) rule = 0;
  result = heaptap_unwind_step(frame, rule, context);
  if (result == HEAPTAP_UNWIND_NO_RULE) {
    result = heaptap_unwind_frame_pointer(frame, rule, context);
    guess = HEAPTAP_RIP_GUESS;
  }
  switch (result) {
    case HEAPTAP_UNWIND_CALLER:
    case HEAPTAP_UNWIND_INTERRUPTED:
      break;
    case HEAPTAP_UNWIND_END:
      stack->end = HEAPTAP_STACK_WHOLE;
      return 1;
    case HEAPTAP_UNWIND_NO_MEMORY:
      stack->end = HEAPTAP_STACK_NO_MEMORY;
      return 1;
    case HEAPTAP_UNWIND_NO_REGISTER:
      stack->end = HEAPTAP_STACK_NO_REGISTER;
      return 1;
    case HEAPTAP_UNWIND_STUCK:
      stack->end = HEAPTAP_STACK_STUCK;
      return 1;
    default:
      stack->end = HEAPTAP_STACK_NO_RULE;
      return 1;
  }
  if (frame->rip == 0 && result == HEAPTAP_UNWIND_INTERRUPTED) {
    if (heaptap_unwind_leave_null(frame, context)) {
      stack->end = HEAPTAP_STACK_NO_MEMORY;
      return 1;
    }
    result = HEAPTAP_UNWIND_CALLER;
  }
  /* Some thread entry points have the return address 0. */
  if (frame->rip == 0) {
    stack->end = HEAPTAP_STACK_WHOLE;
    return 1;
  }
  count = stack->count;
  /* Otherwise the compiler compares one copy and uses another, and the verifier of 6.1 does not see that both are
   * equal.
   */
  __asm__ volatile("" : "+r"(count));
  if (count >= HEAPTAP_MAX_WALK) {
    stack->end = HEAPTAP_STACK_TRUNCATED;
    return 1;
  }
  *rip_bits = result == HEAPTAP_UNWIND_CALLER ? HEAPTAP_RIP_RETURN | guess : 0;
  /* Readers take 1 off each frame to find the call before the return address. The interrupted instruction may be the
   * first of its function. */
  stack->frames[heaptap_frame_place(count)] = frame->rip + (*rip_bits == 0);
  stack->count = count + 1;
  return 0;
}

#endif /* HEAPTAP_UNWIND_STEP_H_ */
