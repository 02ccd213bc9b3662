/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Walks the stack that a program was called on, frame by frame, by the compiler's unwind tables. Through code without a
 * table, most of it made at run time, it follows frame pointers.
 */
#ifndef HEAPTAP_WALK_BPF_H_
#define HEAPTAP_WALK_BPF_H_

#include "bpf/code.bpf.h"
#include "bpf/kernel.h"
#include "bpf/memory.bpf.h"
#include "bpf/scratch.bpf.h"

/* Moves the well-mixed high bits of a product down before the next frame. */
#define HASH_SHIFT 32

/* Set by the collector before load, at random. */
const volatile __u64 stack_seed = 0;

/* The hash of no frames. */
static __always_inline __u64 first_hash(__u64 process_id) { return (stack_seed ^ process_id) * HASH_MULTIPLIER; }

static __always_inline __u64 hash_word(__u64 hash, __u64 word) {
  return (hash ^ hash >> HASH_SHIFT ^ word) * HASH_MULTIPLIER;
}

/* Adds a frame to `files`, a hash of the files of frames. `rule`: the rule of the frame, with the tag of its file. */
static __always_inline __u64 hash_file(__u64 files, __u64 rule) {
  return (files ^ rule >> RULE_TAG_SHIFT) * HASH_MULTIPLIER;
}

/* Frames between two calls of the loop's callback. A call costs half a frame; the verifier checks every frame. */
#define FRAMES_AT_ONCE 8

/* Calls of the loop's callback that a frame takes at most: one finds its rule, one moves the window, one walks. */
#define CALLS_PER_FRAME 3

struct walk {
  struct scratch* scratch;
};

/* Notes the RBP of a frame, unless it is noted, or the RBP of frame 0. */
static __always_inline void note_rbp(struct scratch* scratch, __u64 rbp) {
  if (scratch->rbp_at == RBP_IS_NOTED) return;
  note_word(scratch, scratch->rbp_at, rbp);
  scratch->rbp_at = RBP_IS_NOTED;
}

enum next_frame {
  NO_FRAME, /* the walk is over */
  FRAME_OF_ANY_KIND,
  FRAME_PERHAPS_SIMPLE,
};

/* Whether a rule is of the common kind: the CFA from RSP or RBP, the return address below it, RBP saved or unchanged.
 * One comparison: the verifier follows what comes after a branch twice. */
static __always_inline int is_simple(__u32 rule) {
  _Static_assert((HEAPTAP_CFA_RSP ^ HEAPTAP_CFA_RBP) == 1 && (HEAPTAP_RBP_AT_CFA ^ HEAPTAP_RBP_SAME) == 1,
                 "two kinds that differ in their lowest bit only");
  /* The bits of all kinds, but for these two. */
  const __u32 kinds = heaptap_unwind_rule(14, 0, 2, 0, 1);
  return (rule & kinds) == (kinds & heaptap_unwind_rule(HEAPTAP_CFA_RSP, 0, HEAPTAP_RBP_SAME, 0, HEAPTAP_RA_AT_CFA));
}

/* REQUIRES: is_simple(rule) */
static __always_inline __u64 simple_cfa(const struct heaptap_unwind_frame* frame, __u32 rule) {
  return (heaptap_unwind_cfa_kind(rule) == HEAPTAP_CFA_RSP ? frame->rsp : frame->rbp) +
         8 * (__s64)heaptap_unwind_cfa_parameter(rule);
}

/* Where a rule of the common kind finds the caller's RBP. REQUIRES: its RBP kind is HEAPTAP_RBP_AT_CFA. */
static __always_inline __u64 simple_rbp_at(__u32 rule, __u64 cfa) {
  return cfa + 8 * (__s64)heaptap_unwind_rbp_parameter(rule);
}

/* Walks up like heaptap_unwind_add(), as long as frames are of the common kind, their rules are in the cache, and their
 * words in the window. A function of its own, so that its part of the stack does not add to the part of
 * walk_frame(). */
__noinline enum next_frame walk_simple_frames(struct scratch* scratch) {
  if (!scratch) return NO_FRAME; /* never */
  const __u64 salt = scratch->salt;
  struct heaptap_unwind_frame frame = scratch->frame;
  __u32 rip_bits = scratch->rip_bits;
  __u64 hash = scratch->hash;
  __u64 files = scratch->files;
  enum next_frame next = FRAME_OF_ANY_KIND;
  __u64 given = scratch->given_rule;
  __u64 found = 0;
  __u32 i;
  for (i = 0; i < FRAMES_AT_ONCE; i++) {
    const __u64 pc = frame.rip - (rip_bits & HEAPTAP_RIP_RETURN);
    found = given;
    given = 0;
    if (found == 0) found = find_cached_rule(salt, pc);
    if (found == 0) found = find_known_rule(scratch, pc);
    const __u32 rule = found;
    if (rule == HEAPTAP_CFA_END) {
      next = NO_FRAME;
      files = hash_file(files, found);
    }
    if (!is_simple(rule)) break;
    const __u64 cfa = simple_cfa(&frame, rule);
    __u64 rip;
    __u64 rbp = frame.rbp;
    if (cfa <= frame.rsp || read_window(scratch, cfa - 8, &rip) || rip == 0) break;
    const __u64 rbp_at = simple_rbp_at(rule, cfa);
    const int saves_rbp = heaptap_unwind_rbp_kind(rule) == HEAPTAP_RBP_AT_CFA;
    if (saves_rbp && read_window(scratch, rbp_at, &rbp)) break;
    /* Read from memory: for a number in a register, the verifier would follow the loop anew for each bound that it
     * finds. */
    const __u32 count = *(volatile __u32*)&scratch->stack.count;
    if (count >= HEAPTAP_MAX_WALK) break;
    if (heaptap_unwind_cfa_kind(rule) == HEAPTAP_CFA_RBP) note_rbp(scratch, frame.rbp);
    note_word(scratch, cfa - 8, rip);
    if (saves_rbp) scratch->rbp_at = rbp_at;
    frame.rip = rip;
    frame.rsp = cfa;
    frame.rbp = rbp;
    frame.others = HEAPTAP_UNWIND_OTHERS_LOST;
    heaptap_unwind_follow_rbx(&frame, rule, cfa);
    rip_bits = HEAPTAP_RIP_RETURN;
    hash = hash_word(hash, rip);
    files = hash_file(files, found);
    scratch->stack.frames[heaptap_frame_place(count)] = rip;
    scratch->stack.count = count + 1;
  }
  scratch->given_rule = 0;
  scratch->had_rule = found != 0;
  scratch->frame = frame;
  scratch->rip_bits = rip_bits;
  scratch->hash = hash;
  scratch->files = files;
  if (next == NO_FRAME) scratch->stack.end = HEAPTAP_STACK_WHOLE;
  return i < FRAMES_AT_ONCE ? next : FRAME_PERHAPS_SIMPLE;
}

/* The hash of the frames in `scratch`, from its beginning. */
static __noinline __u64 hash_frames(const struct scratch* scratch) {
  if (!scratch) return 0; /* never */
  __u64 hash = first_hash(scratch->process_id);
  for (__u32 i = 0; i < HEAPTAP_MAX_FRAMES; i++) {
    if (i >= scratch->stack.count) break;
    hash = hash_word(hash, scratch->stack.frames[i]);
  }
  return hash;
}

/* Whether the words that a rule of the common kind reads are in the window. */
static __always_inline int holds_frame(const struct scratch* scratch, __u32 rule) {
  const __u64 cfa = simple_cfa(&scratch->frame, rule);
  __u64 word;
  if (read_window(scratch, cfa - 8, &word)) return 0;
  return heaptap_unwind_rbp_kind(rule) == HEAPTAP_RBP_SAME || !read_window(scratch, simple_rbp_at(rule, cfa), &word);
}

/* Moves the window to a frame of the common kind. Returns 1 if walk_simple_frames() can go on; 0 if the words were in
 * the window before, or cannot be. */
static __noinline int reach_simple_frame(struct scratch* scratch, __u32 rule) {
  if (!scratch) return 0; /* never */
  if (holds_frame(scratch, rule)) return 0;
  const __u64 begin = scratch->frame.rsp & ~7ULL;
  const __u64 end = (simple_cfa(&scratch->frame, rule) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1ULL);
  const __u64 bytes = end - begin;
  if (bytes > WINDOW_BYTES) return 0;
  const long error = bpf_probe_read_user(scratch->window, bytes, (const void*)begin);
  scratch->window_begin = begin;
  scratch->window_bytes = error ? 0 : bytes;
  return holds_frame(scratch, rule);
}

/* One frame up, of any kind, or what walk_simple_frames() needs to go on. Returns 1 when the walk is over. */
__noinline long walk_frame(struct scratch* scratch) {
  if (!scratch) return 1; /* never */
  struct heaptap_stack* stack = &scratch->stack;
  const __u64 pc = scratch->frame.rip - (scratch->rip_bits & HEAPTAP_RIP_RETURN);
  const __u64 rule = find_rule(scratch, pc);
  if (rule & RULE_MISSING) {
    stack->end = rule & RULE_LATE ? HEAPTAP_STACK_UNFINISHED : HEAPTAP_STACK_NO_CODE;
    return 1;
  }
  if (is_simple(rule) && (!scratch->had_rule || reach_simple_frame(scratch, rule))) {
    scratch->given_rule = rule;
    return 0;
  }
  const __u32 cfa_kind = heaptap_unwind_cfa_kind(rule);
  scratch->files = hash_file(scratch->files, rule);
  if (cfa_kind != HEAPTAP_CFA_END) note_rbp(scratch, scratch->frame.rbp);
  /* Code without a rule is mostly made at run time, and may change. */
  if (cfa_kind == HEAPTAP_CFA_NONE) scratch->words_read += WORDS_READ_LOST;
  if (heaptap_unwind_add(stack, &scratch->frame, &scratch->rip_bits, rule, scratch)) return 1;
  scratch->hash = hash_word(scratch->hash, scratch->frame.rip);
  return 0;
}

/* Leaves out the frames that are not kept, and a last address that is not a frame: it is outside of all code, and may
 * differ in each sample. */
__noinline int close_walk(struct scratch* scratch) {
  if (!scratch) return 0; /* never */
  struct heaptap_stack* stack = &scratch->stack;
  const __u32 without_last = stack->end == HEAPTAP_STACK_NO_CODE && stack->count > 1;
  if (!without_last && stack->count <= HEAPTAP_MAX_FRAMES) return 0;
  scratch->window_bytes = 0; /* it serves as space, and no longer holds memory of the process */
  /* Recursions of different depth are the same call path. Readers see that the stack is a deep one. */
  if (stack->count > HEAPTAP_MAX_FRAMES) scratch->files = 0;
  heaptap_stack_close(stack, without_last, scratch->window);
  scratch->hash = hash_frames(scratch);
  return 0;
}

static long walk_frames(__u32 index, struct walk* walk) {
  if (!walk->scratch) return 1; /* never */
  const enum next_frame next = walk_simple_frames(walk->scratch);
  long is_over = next == FRAME_OF_ANY_KIND ? walk_frame(walk->scratch) : next == NO_FRAME;
  /* The compiler may know that this is 0 or 1; the verifier, which assumes nothing about a global function, must see
   * it. */
  asm volatile("" : "+r"(is_over));
  return is_over != 0;
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

/* The expectation is what the largest of the latest walks needed, and a little more: a word too few costs another read.
 * It is rounded up, so that small differences do not change it. */
#define STACK_BYTES_SPARE 64
#define STACK_BYTES_UNIT 128
/* A smaller need lowers the expectation by 1 / STACK_BYTES_PATIENCE of the difference. */
#define STACK_BYTES_PATIENCE 64

/* Notes how much of the stack a walk has needed. */
static __always_inline void expect_stack(struct heaptap_process* process, __u64 needed) {
  __u32 expected = process->stack_bytes;
  if (needed > WINDOW_BYTES - STACK_BYTES_SPARE - STACK_BYTES_UNIT) needed = WINDOW_BYTES;
  __u32 wanted = (needed + STACK_BYTES_SPARE + STACK_BYTES_UNIT - 1) / STACK_BYTES_UNIT * STACK_BYTES_UNIT;
  if (wanted > WINDOW_BYTES) wanted = WINDOW_BYTES;
  if (wanted == expected) return;
  process->stack_bytes =
      wanted > expected ? wanted : expected - (expected - wanted + STACK_BYTES_PATIENCE - 1) / STACK_BYTES_PATIENCE;
}

/* Whether the latest walk of the buffer began with these registers. A walk that uses another register is never
 * repeated (WORDS_READ_LOST). */
static __always_inline int began_here(const struct scratch* scratch, const struct pt_regs* context) {
  return scratch->registers[HEAPTAP_DWARF_RSP] == context->sp && scratch->registers[HEAPTAP_DWARF_RBP] == context->bp &&
         scratch->stack.frames[0] == context->ip;
}

/* Words that one call of the loop's callback compares: each call takes time, and the verifier checks every word. */
#define WORDS_AT_ONCE 16

struct comparison {
  const struct scratch* scratch;
  __u64 differs;
};

static long compare_words(__u32 index, struct comparison* comparison) {
  const struct scratch* const scratch = comparison->scratch;
  if (!scratch) return 1; /* never */
  for (__u32 i = 0; i < WORDS_AT_ONCE; i++) {
    const __u32 number = index * WORDS_AT_ONCE + i;
    if (number >= scratch->words_read) return 1;
    const __u64 expected = scratch->words[number & (WORDS_READ_MAX - 1)];
    __u64 word;
    if (read_window_at(scratch, expected >> HEAPTAP_WORD_DISTANCE_SHIFT << 3, &word) ||
        word != (expected & HEAPTAP_WORD_VALUE)) {
      comparison->differs = 1;
      return 1;
    }
  }
  return 0;
}

/* Whether the latest walk of the buffer would read the same words again. With the same registers and the same unwind
 * tables it would find the same stack: where every allocation is a sample, a third of the time of a deep walk. */
__noinline int would_read_the_same(const struct scratch* scratch) {
  if (!scratch) return 0; /* never */
  if (scratch->words_read > WORDS_READ_MAX) return 0;
  if (scratch->stack.end != HEAPTAP_STACK_WHOLE && scratch->stack.end != HEAPTAP_STACK_TRUNCATED) return 0;
  struct comparison comparison = {.scratch = scratch};
  bpf_loop(WORDS_READ_MAX / WORDS_AT_ONCE, compare_words, &comparison, 0);
  return !comparison.differs;
}

/* Fills in scratch->stack, and continues scratch->hash. If the end is HEAPTAP_STACK_UNFINISHED, scratch->frame is the
 * frame where the walk could not go on for now. The window is at RSP. */
static __always_inline void walk_stack(struct pt_regs* context, struct heaptap_process* process,
                                       struct scratch* scratch) {
  copy_registers(scratch->registers, context);
  scratch->rip_bits = 0;
  scratch->frame.rip = PT_REGS_IP(context);
  scratch->frame.rbp = PT_REGS_FP(context);
  scratch->frame.others = HEAPTAP_UNWIND_OTHERS_LIVE;
  scratch->frame.rbx_at = HEAPTAP_UNWIND_OTHERS_LIVE;
  scratch->hash = hash_word(scratch->hash, scratch->frame.rip);
  scratch->files = 0;
  scratch->stack.frames[0] = scratch->frame.rip;
  scratch->stack.count = 1;
  scratch->stack.end = HEAPTAP_STACK_TRUNCATED;
  scratch->words_read = 0;
  scratch->rbp_at = RBP_IS_NOTED;
  scratch->given_rule = 0;
  struct walk walk = {.scratch = scratch};
  bpf_loop(CALLS_PER_FRAME * HEAPTAP_MAX_WALK, walk_frames, &walk, 0);
  close_walk(scratch);
  expect_stack(process, scratch->frame.rsp - PT_REGS_SP(context));
}

/* A signal frame lies below the frame that the signal interrupted, and RBX was saved in a callee's frame: neither is in
 * a copy of the memory above. Their values replace the registers of frame 0. */
__noinline int take_registers(struct scratch* scratch) {
  if (!scratch) return 0; /* never */
  if (scratch->frame.others > HEAPTAP_UNWIND_OTHERS_LIVE) {
    scratch->window_bytes = 0;
    long error = bpf_probe_read_user(scratch->window, 16 * sizeof(__u64), (const void*)scratch->frame.others);
    scratch->frame.others = error ? HEAPTAP_UNWIND_OTHERS_LOST : HEAPTAP_UNWIND_OTHERS_LIVE;
#pragma unroll
    for (__u32 number = 0; number < 16; number++)
      scratch->registers[number] = scratch->window[HEAPTAP_SIGCONTEXT_INDICES >> 4 * number & 15];
  }
  if (scratch->frame.rbx_at > HEAPTAP_UNWIND_OTHERS_LIVE) {
    long error = bpf_probe_read_user(&scratch->registers[HEAPTAP_DWARF_RBX], 8, (const void*)scratch->frame.rbx_at);
    scratch->frame.rbx_at = error ? HEAPTAP_UNWIND_OTHERS_LOST : HEAPTAP_UNWIND_OTHERS_LIVE;
  }
  return 0;
}

#endif /* HEAPTAP_WALK_BPF_H_ */
