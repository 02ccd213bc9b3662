/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Stacks that cannot be finished here because a table is not loaded: registers and memory go to the collector.
 */
#ifndef HEAPTAP_RAW_STACK_BPF_H_
#define HEAPTAP_RAW_STACK_BPF_H_

#include "bpf/maps.bpf.h"
#include "bpf/scratch.bpf.h"

struct stack_top {
  __u64 address;
};

/* The first stack of a process ends where its program found its arguments; strings are above that. */
static long find_stack_top(struct task_struct* task, struct vm_area_struct* mapping, struct stack_top* top) {
  __u64 arguments = mapping->vm_mm->start_stack;
  top->address = top->address < arguments && arguments < mapping->vm_end ? arguments : mapping->vm_end;
  return 0;
}

/* `chunks` is a constant. Returns 0, or -1 if there is no room. */
static __always_inline int send_chunks(const struct scratch* mine, __u64 stack_id, __u32 chunks) {
  struct heaptap_raw_stack* raw =
      bpf_ringbuf_reserve(&raw_stacks, sizeof(*raw) + (__u64)chunks * HEAPTAP_CHUNK_BYTES, 0);
  if (!raw) return -1;
  raw->process_id = mine->process_id;
  raw->stack_id = stack_id;
  raw->time = bpf_ktime_get_ns();
  raw->frame = mine->frame;
  __builtin_memcpy(raw->registers, mine->registers, sizeof(raw->registers));
  raw->is_return = mine->is_return;
  raw->tgid = mine->tgid;
  raw->reserved = 0;
  bpf_probe_read_kernel(&raw->stack, sizeof(raw->stack), &mine->stack);
  /* Chunk by chunk, none across a page: the last page that is there may be anywhere. */
  __u64 begin = mine->frame.rsp & ~(HEAPTAP_CHUNK_BYTES - 1ULL);
  raw->memory_begin = begin;
  __u32 bytes = 0;
  for (__u32 chunk = 0; chunk < chunks; chunk++) {
    if (bpf_probe_read_user((char*)(raw + 1) + chunk * HEAPTAP_CHUNK_BYTES, HEAPTAP_CHUNK_BYTES,
                            (const void*)(begin + chunk * HEAPTAP_CHUNK_BYTES)))
      break;
    bytes += HEAPTAP_CHUNK_BYTES;
  }
  raw->memory_bytes = bytes;
  bpf_ringbuf_submit(raw, 0);
  return 0;
}

/* Returns 0, or -1 if there is no room. */
static __noinline int send_raw_stack(const struct scratch* mine, __u64 stack_id) {
  __u64 rsp = mine->frame.rsp;
  struct stack_top top = {.address = rsp};
  if (bpf_find_vma(bpf_get_current_task_btf(), rsp, find_stack_top, &top, 0)) top.address = ~0ULL;
  __u64 chunks = (top.address - (rsp & ~(HEAPTAP_CHUNK_BYTES - 1ULL))) / HEAPTAP_CHUNK_BYTES + 1;
  /* A reservation has a constant size. */
  if (chunks <= 1) return send_chunks(mine, stack_id, 1);
  if (chunks <= 2) return send_chunks(mine, stack_id, 2);
  if (chunks <= 4) return send_chunks(mine, stack_id, 4);
  if (chunks <= 8) return send_chunks(mine, stack_id, 8);
  if (chunks <= 16) return send_chunks(mine, stack_id, 16);
  return send_chunks(mine, stack_id, HEAPTAP_RAW_STACK_CHUNKS);
}

static __always_inline int has_room_for_raw_stack(void) {
  return bpf_ringbuf_query(&raw_stacks, BPF_RB_AVAIL_DATA) + 2 * HEAPTAP_RAW_STACK_CHUNKS * HEAPTAP_CHUNK_BYTES <
         bpf_ringbuf_query(&raw_stacks, BPF_RB_RING_SIZE);
}

#endif /* HEAPTAP_RAW_STACK_BPF_H_ */
