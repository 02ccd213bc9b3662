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

struct walk {
  struct scratch* mine;
};

/* One frame up. Returns 1 when the walk is over. */
static long walk_frame(__u32 index, struct walk* walk) {
  struct scratch* mine = walk->mine;
  if (!mine) return 1; /* never */
  struct heaptap_stack* stack = &mine->stack;
  __u64 rule = find_rule(mine, mine->frame.rip - mine->is_return);
  if (rule >> 32) {
    stack->end = rule == RULE_LATE ? HEAPTAP_STACK_UNFINISHED : HEAPTAP_STACK_NO_CODE;
    return 1;
  }
  return heaptap_unwind_add(stack, &mine->frame, &mine->is_return, rule, mine);
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

/* Fills in mine->stack. An end of HEAPTAP_STACK_UNFINISHED: mine->frame is where the walk could not go on for now. */
static __always_inline void walk_stack(struct pt_regs* context, struct scratch* mine) {
  copy_registers(mine->registers, context);
  mine->window_begin = ~0ULL;
  mine->is_return = 0;
  mine->frame.rip = PT_REGS_IP(context);
  mine->frame.rsp = PT_REGS_SP(context);
  mine->frame.rbp = PT_REGS_FP(context);
  mine->frame.others = HEAPTAP_UNWIND_OTHERS_LIVE;
  mine->stack.frames[0] = mine->frame.rip;
  mine->stack.count = 1;
  mine->stack.end = HEAPTAP_STACK_TRUNCATED;
  struct walk walk = {.mine = mine};
  bpf_loop(HEAPTAP_MAX_FRAMES, walk_frame, &walk, 0);
}

#endif /* HEAPTAP_WALK_BPF_H_ */
