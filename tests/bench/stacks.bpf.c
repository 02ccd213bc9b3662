// SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only)
/*
 * The ways to take a stack that tests/bench/run compares, each a program for otel_memory:alloc. They differ only in the
 * stack; tests/bench/stacks.cc replaces the maps declared here by those of the books.
 */
#include "bpf/kernel.h"
#include "bpf/stack.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Number of stacks by their number of frames; 0: not whole. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, HEAPTAP_MAX_FRAMES + 1);
  __type(key, __u32);
  __type(value, __u64);
} depths SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct heaptap_stack);
} helper_stack SEC(".maps");

static __always_inline struct heaptap_process* find_process(void) {
  __u32 tgid = bpf_get_current_pid_tgid() >> 32;
  return bpf_map_lookup_elem(&processes, &tgid);
}

static __always_inline int count(__u32 frames) {
  __u64* stacks_so_deep = bpf_map_lookup_elem(&depths, &frames);
  if (stacks_so_deep) *stacks_so_deep += 1;
  return 0;
}

/* `again`: the next walk may find that its stack is the same. */
static __always_inline __u32 walk(struct pt_regs* context, struct heaptap_process* process, int again) {
  struct scratch* scratch = take_stack(context, process, bpf_get_current_pid_tgid() >> 32, process->identity.id);
  if (!scratch) return 0;
  __u32 frames = scratch->stack.end == HEAPTAP_STACK_WHOLE ? scratch->stack.count : 0;
  if (!again) scratch->words_read = WORDS_READ_LOST;
  release_scratch(scratch);
  return frames;
}

SEC("uprobe")
int ignore(struct pt_regs* context) { return 0; }

SEC("uprobe")
int nothing(struct pt_regs* context) { return find_process() ? count(0) : 0; }

SEC("uprobe")
int helper(struct pt_regs* context) {
  if (!find_process()) return 0;
  __u32 key = 0;
  struct heaptap_stack* stack = bpf_map_lookup_elem(&helper_stack, &key);
  if (!stack) return 0;
  long bytes = bpf_get_stack(context, stack->frames, sizeof(stack->frames), BPF_F_USER_STACK);
  return count(bytes < 0 ? 0 : bytes / sizeof(stack->frames[0]));
}

SEC("uprobe")
int tables(struct pt_regs* context) {
  struct heaptap_process* process = find_process();
  return process ? count(walk(context, process, 0)) : 0;
}

SEC("uprobe")
int same(struct pt_regs* context) {
  struct heaptap_process* process = find_process();
  return process ? count(walk(context, process, 1)) : 0;
}

SEC("uprobe")
int uncached(struct pt_regs* context) {
  struct heaptap_process* process = find_process();
  if (!process) return 0;
  process->mappings++; /* no cached rule holds any more */
  return count(walk(context, process, 0));
}
