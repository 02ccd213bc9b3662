/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Raw stacks. When a walk meets a file whose table is not loaded, registers and memory go to the collector, which
 * finishes the stack.
 */
#ifndef HEAPTAP_RAW_STACK_BPF_H_
#define HEAPTAP_RAW_STACK_BPF_H_

#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/memory.bpf.h"
#include "bpf/scratch.bpf.h"
#include "bpf/users.bpf.h"

struct stack_place {
  __u64 pointer;
  __u64 begin;
  __u64 top; /* 0: unknown */
};

/* The main thread's stack ends where the program's arguments begin; above the arguments are strings. */
static long find_stack(struct task_struct* task, struct vm_area_struct* mapping, struct stack_place* stack) {
  __u64 arguments = mapping->vm_mm->start_stack;
  stack->begin = mapping->vm_start;
  stack->top = stack->pointer < arguments && arguments < mapping->vm_end ? arguments : mapping->vm_end;
  return 0;
}

/* Room for the copies that other CPUs may make at the same time. */
#define SPARE_COPIES 2
/* A copy of LARGE_STACK_CHUNKS may be made if it leaves the ring less than 1 / LARGE_PART full, and a copy of
 * HEAPTAP_MOST_STACK_CHUNKS if it leaves the ring less than 1 / MOST_PART full. */
#define LARGE_STACK_CHUNKS 257
#define LARGE_PART 2
#define MOST_PART 4
/* Pages of the largest copy, with a part of a page at either end. */
#define MOST_STACK_PAGES ((HEAPTAP_MOST_STACK_CHUNKS * HEAPTAP_CHUNK_BYTES >> PAGE_SHIFT) + 1)

static __always_inline __u64 raw_stack_size(__u32 chunks) {
  return sizeof(struct heaptap_raw_stack) + (__u64)chunks * HEAPTAP_CHUNK_BYTES;
}

/* Whether the ring has room for a copy of the calling thread's stack, and the thread's user may have it. */
__noinline int has_room_for_raw_stack(void) {
  const __u64 size = bpf_ringbuf_query(&raw_stacks, BPF_RB_RING_SIZE);
  const __u64 used = bpf_ringbuf_query(&raw_stacks, BPF_RB_AVAIL_DATA);
  if (used + SPARE_COPIES * HEAPTAP_RAW_STACK_CHUNKS * HEAPTAP_CHUNK_BYTES >= size) return 0;
  if (used < size / 2) return 1;
  const struct user* user = user_at(find_user_slot());
  const __u64 consumed = bpf_ringbuf_query(&raw_stacks, BPF_RB_CONS_POS);
  return user && may_fill(&user->raw_stacks, size, used, consumed, SHARE_OF_FREE);
}

/* Called before the bytes are reserved. */
__noinline int count_raw_stack(__u64 bytes) {
  struct user* user = user_at(find_user_slot());
  if (!user) return 0; /* never */
  const __u64 size = bpf_ringbuf_query(&raw_stacks, BPF_RB_RING_SIZE);
  count_filled(&user->raw_stacks, size, bpf_ringbuf_query(&raw_stacks, BPF_RB_PROD_POS), bytes);
  return 0;
}

static __always_inline struct thread_stack* find_thread_stack(void) {
  __u32 tid = bpf_get_current_pid_tgid();
  struct thread_stack* known = bpf_map_lookup_elem(&thread_stacks, &tid);
  if (known) return known;
  struct thread_stack none = {};
  bpf_map_update_elem(&thread_stacks, &tid, &none, BPF_NOEXIST);
  return bpf_map_lookup_elem(&thread_stacks, &tid);
}

static long try_to_find_stack(__u32 index, struct stack_place* stack) {
  return bpf_find_vma(bpf_get_current_task_btf(), stack->pointer, find_stack, stack, 0) != -EBUSY;
}

struct stack_extent {
  __u64 first; /* address of the page of the stack pointer */
  __u64 pages; /* mapped pages from there on, without a gap */
};

static long count_page(__u32 index, struct stack_extent* extent) {
  __u64 word;
  if (bpf_probe_read_user(&word, sizeof(word), (const void*)(extent->first + ((__u64)index << PAGE_SHIFT)))) return 1;
  extent->pages = index + 1;
  return 0;
}

/* An upper bound of the top: the first page that is not mapped. All of a stack above its pointer has been written, so
 * its pages are mapped. Costs one read for each page. */
static __noinline __u64 measure_top(__u64 rsp) {
  struct stack_extent extent = {.first = rsp >> PAGE_SHIFT << PAGE_SHIFT};
  bpf_loop(MOST_STACK_PAGES, count_page, &extent, 0);
  return extent.pages ? extent.first + (extent.pages << PAGE_SHIFT) : rsp;
}

/* The number of chunks from the stack pointer to the top of the stack. The top comes from the list of mappings. While
 * another thread has the list locked, the top comes from the thread's latest copy, or else from the memory itself. */
__noinline __u64 count_chunks(struct thread_stack* known, __u64 rsp) {
  struct stack_place stack = {.pointer = rsp};
  bpf_loop(MAPPING_TRIES, try_to_find_stack, &stack, 0);
  if (known && stack.top) {
    known->begin = stack.begin;
    known->top = stack.top;
  } else if (known && known->begin <= rsp && rsp < known->top) {
    stack.top = known->top;
  }
  if (!stack.top) stack.top = measure_top(rsp);
  return (stack.top - (rsp & ~(HEAPTAP_CHUNK_BYTES - 1ULL))) / HEAPTAP_CHUNK_BYTES + 1;
}

struct chunk_copy {
  struct heaptap_raw_stack* raw;
  __u64 chunks;  /* the number that `raw` has room for */
  __u64 no_page; /* the number of the latest page that could not be read */
};

/* Copies one chunk. No chunk crosses a page, because any page may be unmapped. */
static long copy_chunk(__u32 chunk, struct chunk_copy* copy) {
  struct heaptap_raw_stack* raw = copy->raw;
  if (chunk >= copy->chunks || chunk >= HEAPTAP_MOST_STACK_CHUNKS) return 1; /* never */
  __u64 at = (__u64)chunk * HEAPTAP_CHUNK_BYTES;
  __u64 address = raw->memory_begin + at;
  /* A fault costs as much as ten reads, so one for each page is enough. */
  if (address >> PAGE_SHIFT == copy->no_page ||
      bpf_probe_read_user((char*)(raw + 1) + at, HEAPTAP_CHUNK_BYTES, (const void*)address)) {
    copy->no_page = address >> PAGE_SHIFT;
    raw->missing[chunk / HEAPTAP_CHUNKS_PER_WORD] |= 1ULL << chunk % HEAPTAP_CHUNKS_PER_WORD;
  } else {
    raw->memory_bytes = at + HEAPTAP_CHUNK_BYTES;
  }
  return 0;
}

/* `chunks` must be a constant. Returns 0, or -1 if there is no room. */
static __always_inline int send_chunks(const struct scratch* scratch, __u64 stack_id, __u32 chunks) {
  struct heaptap_raw_stack* raw = bpf_ringbuf_reserve(&raw_stacks, raw_stack_size(chunks), 0);
  if (!raw) return -1;
  raw->process_id = scratch->process_id;
  raw->stack_id = stack_id;
  raw->time = bpf_ktime_get_ns();
  raw->frame = scratch->frame;
  __builtin_memcpy(raw->registers, scratch->registers, sizeof(raw->registers));
  raw->rip_bits = scratch->rip_bits;
  raw->tgid = scratch->tgid;
  raw->reserved = 0;
  bpf_probe_read_kernel(&raw->stack, sizeof(raw->stack), &scratch->stack);
  raw->memory_begin = scratch->frame.rsp & ~(HEAPTAP_CHUNK_BYTES - 1ULL);
  raw->memory_bytes = 0;
  __builtin_memset(raw->missing, 0, sizeof(raw->missing));
  struct chunk_copy copy = {.raw = raw, .chunks = chunks, .no_page = ~0ULL};
  bpf_loop(chunks, copy_chunk, &copy, 0);
  bpf_ringbuf_submit(raw, 0);
  return 0;
}

/* Whether less than 1 / `part` of the ring is in use after a copy of that size. */
static __always_inline int is_roomy(__u64 chunks, __u64 part) {
  return bpf_ringbuf_query(&raw_stacks, BPF_RB_AVAIL_DATA) + raw_stack_size(chunks) <
         bpf_ringbuf_query(&raw_stacks, BPF_RB_RING_SIZE) / part;
}

/* Returns 0, or -1 if there is no room. */
__noinline int send_raw_stack(const struct scratch* scratch, __u64 stack_id) {
  if (!scratch) return -1; /* never */
  __u64 chunks = count_chunks(find_thread_stack(), scratch->frame.rsp);
  __u64 most = HEAPTAP_MOST_STACK_CHUNKS;
  if (!is_roomy(most, MOST_PART)) most = LARGE_STACK_CHUNKS;
  if (!is_roomy(most, LARGE_PART)) most = HEAPTAP_RAW_STACK_CHUNKS;
  if (chunks > most) chunks = most;
  count_raw_stack(raw_stack_size(chunks));
  /* The size of a reservation must be a constant. */
  if (chunks <= 1) return send_chunks(scratch, stack_id, 1);
  if (chunks <= 2) return send_chunks(scratch, stack_id, 2);
  if (chunks <= 4) return send_chunks(scratch, stack_id, 4);
  if (chunks <= 8) return send_chunks(scratch, stack_id, 8);
  if (chunks <= 16) return send_chunks(scratch, stack_id, 16);
  if (chunks <= HEAPTAP_RAW_STACK_CHUNKS) return send_chunks(scratch, stack_id, HEAPTAP_RAW_STACK_CHUNKS);
  if (chunks <= 64) return send_chunks(scratch, stack_id, 64);
  if (chunks <= 96) return send_chunks(scratch, stack_id, 96);
  if (chunks <= 144) return send_chunks(scratch, stack_id, 144);
  if (chunks <= 192) return send_chunks(scratch, stack_id, 192);
  if (chunks <= LARGE_STACK_CHUNKS) return send_chunks(scratch, stack_id, LARGE_STACK_CHUNKS);
  if (chunks <= 384) return send_chunks(scratch, stack_id, 384);
  if (chunks <= 512) return send_chunks(scratch, stack_id, 512);
  if (chunks <= 768) return send_chunks(scratch, stack_id, 768);
  return send_chunks(scratch, stack_id, HEAPTAP_MOST_STACK_CHUNKS);
}

#endif /* HEAPTAP_RAW_STACK_BPF_H_ */
