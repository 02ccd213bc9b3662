/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Which frames of a deep stack are kept: the innermost, which say what was allocated, and the outermost, which say for
 * whom. A walk does not know how deep it will go. So it writes the frames beyond the innermost into a ring, and
 * heaptap_stack_close() puts the ring in order. For the eBPF programs and for the collector, which finishes walks.
 *
 * Numbers of frames count from 0, the innermost.
 */
#ifndef HEAPTAP_DEEP_STACK_H_
#define HEAPTAP_DEEP_STACK_H_

#include "bpf/books.h"

#define HEAPTAP_OUTER_BEGIN (HEAPTAP_INNER_FRAMES + 1) /* after HEAPTAP_FRAMES_LEFT_OUT */
#define HEAPTAP_OUTER_FRAMES (HEAPTAP_MAX_FRAMES - HEAPTAP_OUTER_BEGIN)

/* Redundant; the verifier of 6.1 has lost the bound. */
static inline __u32 heaptap_bounded_place(__u64 place) {
#ifdef __bpf__
  __asm__ volatile("%0 &= %1" : "+r"(place) : "i"(HEAPTAP_MAX_FRAMES));
#endif
  return (__u32)place;
}

/* The index in heaptap_stack.frames of a frame in the ring. REQUIRES: number >= HEAPTAP_OUTER_BEGIN. */
static inline __u32 heaptap_ring_place(__u32 number) {
  return heaptap_bounded_place(HEAPTAP_OUTER_BEGIN + (number - HEAPTAP_OUTER_BEGIN) % HEAPTAP_OUTER_FRAMES);
}

/* The index in heaptap_stack.frames of a frame. */
static inline __u32 heaptap_frame_place(__u32 number) {
  return number < HEAPTAP_MAX_FRAMES ? heaptap_bounded_place(number) : heaptap_ring_place(number);
}

/* Ends a walk that has found stack->count frames, perhaps more than are kept. If `without_last`, the last one is not a
 * frame. `space`: HEAPTAP_OUTER_FRAMES words. */
static inline void heaptap_stack_close(struct heaptap_stack* stack, __u32 without_last, __u64* space) {
  const __u32 count = stack->count;
  __u32 i;
  if (count <= HEAPTAP_MAX_FRAMES) {
    stack->count = count - without_last;
    return;
  }
  for (i = 0; i < HEAPTAP_OUTER_FRAMES; i++) space[i] = stack->frames[heaptap_ring_place(count + i)];
  for (i = 0; i < HEAPTAP_OUTER_FRAMES; i++) stack->frames[HEAPTAP_OUTER_BEGIN + i] = space[i];
  stack->frames[HEAPTAP_INNER_FRAMES] = HEAPTAP_FRAMES_LEFT_OUT;
  stack->count = HEAPTAP_MAX_FRAMES - without_last;
}

/* Reopens a stack that was closed with its last frame, so that the walk can go on. REQUIRES: stack->count <=
 * HEAPTAP_MAX_FRAMES. */
static inline void heaptap_stack_reopen(struct heaptap_stack* stack) {
  if (stack->count < HEAPTAP_MAX_FRAMES || stack->frames[HEAPTAP_INNER_FRAMES] != HEAPTAP_FRAMES_LEFT_OUT) return;
  /* Any number above HEAPTAP_MAX_FRAMES for which the ring begins at its first place. */
  stack->count = HEAPTAP_OUTER_BEGIN + 2 * HEAPTAP_OUTER_FRAMES;
}

#endif /* HEAPTAP_DEEP_STACK_H_ */
