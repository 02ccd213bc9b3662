/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Walks the stack that a program was called on, frame by frame, by the compiler's unwind tables; through code that has
 * none (code made at run time, mostly) by its frame pointer.
 */
#ifndef HEAPTAP_WALK_BPF_H_
#define HEAPTAP_WALK_BPF_H_

/* clang-format off: step needs memory. */
#include "bpf/code.bpf.h"
#include "bpf/memory.bpf.h"
#include "bpf/unwind_step.h"
/* clang-format on */

/* Brings the well-mixed high bits of a product down before the next frame. */
#define HASH_SHIFT 32

static __always_inline __u64 hash_word(__u64 hash, __u64 word) {
  return (hash ^ hash >> HASH_SHIFT ^ word) * HASH_MULTIPLIER;
}

/* Frames between two calls: a call costs half a frame, and the verifier looks at each of them. */
#define FRAMES_AT_ONCE 16

struct walk {
  struct scratch* mine;
};

/* Frames up, as heaptap_unwind_add() does it, as long as they are like most: rules that are in the cache, the CFA by
 * RSP or RBP, memory that is in the window. Returns 1 when the walk is over. */
static __always_inline long walk_simple_frames(struct scratch* mine) {
  const __u64 salt = mine->salt;
  struct heaptap_unwind_frame frame = mine->frame;
  __u64 is_return = mine->is_return;
  __u64 hash = mine->hash;
  __u32 count = mine->stack.count;
  long over = 0;
  for (__u32 i = 0; i < FRAMES_AT_ONCE; i++) {
    __u32 rule = find_cached_rule(salt, frame.rip - is_return);
    __u32 cfa_kind = heaptap_unwind_cfa_kind(rule);
    __u32 rbp_kind = heaptap_unwind_rbp_kind(rule);
    over = cfa_kind == HEAPTAP_CFA_END;
    if (cfa_kind != HEAPTAP_CFA_RSP && cfa_kind != HEAPTAP_CFA_RBP) break;
    if (heaptap_unwind_ra_kind(rule) != HEAPTAP_RA_AT_CFA) break;
    __u64 cfa = cfa_kind == HEAPTAP_CFA_RSP ? frame.rsp : frame.rbp;
    cfa += 8 * (__s64)heaptap_unwind_cfa_parameter(rule);
    __u64 rip;
    __u64 rbp = frame.rbp;
    if (cfa <= frame.rsp || read_window(mine, cfa - 8, &rip) || rip == 0) break;
    if (rbp_kind == HEAPTAP_RBP_AT_CFA) {
      if (read_window(mine, cfa + 8 * (__s64)heaptap_unwind_rbp_parameter(rule), &rbp)) break;
    } else if (rbp_kind != HEAPTAP_RBP_SAME) {
      break;
    }
    asm volatile("" : "+r"(count)); /* else the compiler keeps an address in its place, which the verifier refuses */
    if (count >= HEAPTAP_MAX_FRAMES) break;
    frame.rip = rip;
    frame.rsp = cfa;
    frame.rbp = rbp;
    frame.others = HEAPTAP_UNWIND_OTHERS_LOST;
    heaptap_unwind_follow_rbx(&frame, rule, cfa);
    is_return = 1;
    hash = hash_word(hash, rip);
    mine->stack.frames[count] = rip;
    count++;
  }
  mine->frame = frame;
  mine->is_return = is_return;
  mine->hash = hash;
  mine->stack.count = count;
  if (over) mine->stack.end = HEAPTAP_STACK_WHOLE;
  return over;
}

/* One frame up, whatever it is. Returns 1 when the walk is over. */
static __noinline long walk_frame(struct scratch* mine) {
  if (!mine) return 1; /* never */
  struct heaptap_stack* stack = &mine->stack;
  __u64 rule = find_rule(mine, mine->frame.rip - mine->is_return);
  if (rule >> 32) {
    stack->end = rule == RULE_LATE ? HEAPTAP_STACK_UNFINISHED : HEAPTAP_STACK_NO_CODE;
    /* What is no code is no frame. */
    if (rule == RULE_NO_CODE && stack->count > 1) stack->count--;
    return 1;
  }
  if (heaptap_unwind_add(stack, &mine->frame, &mine->is_return, rule, mine)) return 1;
  mine->hash = hash_word(mine->hash, mine->frame.rip);
  return 0;
}

static long walk_frames(__u32 index, struct walk* walk) {
  if (!walk->mine) return 1; /* never */
  return walk_simple_frames(walk->mine) || walk_frame(walk->mine);
}

static __always_inline void copy_registers(__u64* registers, struct pt_regs* context) {
  registers[0] = context->ax;
  registers[1] = context->dx;
  registers[2] = context->cx;
  registers[3] = context->bx;
  registers[4] = context->si;
  registers[5] = context->di;
  registers[6] = context->bp;
  registers[7] = context->sp;
  registers[8] = context->r8;
  registers[9] = context->r9;
  registers[10] = context->r10;
  registers[11] = context->r11;
  registers[12] = context->r12;
  registers[13] = context->r13;
  registers[14] = context->r14;
  registers[15] = context->r15;
}

/* Fills in mine->stack, and goes on with mine->hash. An end of HEAPTAP_STACK_UNFINISHED: mine->frame is where the walk
 * could not go on for now. */
static __always_inline void walk_stack(struct pt_regs* context, struct scratch* mine) {
  copy_registers(mine->registers, context);
  mine->is_return = 0;
  mine->frame.rip = PT_REGS_IP(context);
  mine->frame.rsp = PT_REGS_SP(context);
  mine->frame.rbp = PT_REGS_FP(context);
  mine->frame.others = HEAPTAP_UNWIND_OTHERS_LIVE;
  mine->frame.rbx_at = HEAPTAP_UNWIND_OTHERS_LIVE;
  mine->hash = hash_word(mine->hash, mine->frame.rip);
  mine->stack.frames[0] = mine->frame.rip;
  mine->stack.count = 1;
  mine->stack.end = HEAPTAP_STACK_TRUNCATED;
  move_window(mine, mine->frame.rsp);
  struct walk walk = {.mine = mine};
  bpf_loop(HEAPTAP_MAX_FRAMES, walk_frames, &walk, 0);
}

/* A signal frame lies below the frame that the signal interrupted, and RBX was saved in a callee's: neither is in a
 * copy of the memory above. What they hold goes in place of frame 0's registers. */
static __noinline int take_registers(struct scratch* mine) {
  if (mine->frame.others > HEAPTAP_UNWIND_OTHERS_LIVE) {
    mine->window_bytes = 0;
    long error = bpf_probe_read_user(mine->window, 16 * sizeof(__u64), (const void*)mine->frame.others);
    mine->frame.others = error ? HEAPTAP_UNWIND_OTHERS_LOST : HEAPTAP_UNWIND_OTHERS_LIVE;
#pragma unroll
    for (__u32 number = 0; number < 16; number++)
      mine->registers[number] = mine->window[HEAPTAP_SIGCONTEXT_INDICES >> 4 * number & 15];
  }
  if (mine->frame.rbx_at > HEAPTAP_UNWIND_OTHERS_LIVE) {
    long error = bpf_probe_read_user(&mine->registers[HEAPTAP_DWARF_RBX], 8, (const void*)mine->frame.rbx_at);
    mine->frame.rbx_at = error ? HEAPTAP_UNWIND_OTHERS_LOST : HEAPTAP_UNWIND_OTHERS_LIVE;
  }
  return 0;
}

#endif /* HEAPTAP_WALK_BPF_H_ */
