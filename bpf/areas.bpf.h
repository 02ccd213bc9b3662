/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Areas: memory in which a process counts samples whose stacks it knows (allocator/include/heaptap/contract.h, AREAS).
 * Here a process learns which words of its stack have decided a walk.
 */
#ifndef HEAPTAP_AREAS_BPF_H_
#define HEAPTAP_AREAS_BPF_H_

#include "allocator/include/heaptap/contract.h"
#include "bpf/books.h"
#include "bpf/kernel.h"
#include "bpf/scratch.bpf.h"

struct area {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, HEAPTAP_AREA_PAGES);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(struct heaptap_mailbox));
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, HEAPTAP_AREA_SLOTS);
  __type(key, __u32);
  __array(values, struct area);
} areas SEC(".maps");

/* The mailbox that a thread has passed with a sample; null: it has none. `where`: HEAPTAP_WHERE. */
static __always_inline struct heaptap_mailbox* find_mailbox(__u32 slot, __u64 where) {
  __u32 number = where >> HEAPTAP_WHERE_MAILBOX_SHIFT;
  if (number == 0 || number > HEAPTAP_MAILBOXES) return NULL;
  void* const pages = bpf_map_lookup_elem(&areas, &slot);
  return pages ? bpf_map_lookup_elem(pages, &number) : NULL;
}

/* Whether the collector is the only listener of the site that the program runs at. Other listeners must get each sample
 * too. 0 where the kernel does not say. */
__noinline int is_only_listener(void) {
  const struct uprobe_task* const any_task = NULL;
  const struct uprobe___list* const any_list = NULL;
  const struct uprobe___pointer* const any_pointer = NULL;
  (void)any_task;
  (void)any_list;
  (void)any_pointer;
  if (!bpf_core_field_exists(any_task->auprobe)) return 0;
  const struct task_struct* const task = bpf_get_current_task_btf();
  const struct uprobe_task* const running = BPF_CORE_READ(task, utask);
  if (!running) return 0;
  const __u64 arch = (__u64)BPF_CORE_READ(running, auprobe);
  if (arch == 0) return 0;
  const __u64 begin = arch - bpf_core_field_offset(struct uprobe, arch);
  if (bpf_core_field_exists(any_list->consumers.next)) {
    const struct uprobe___list* const probe = (const struct uprobe___list*)begin;
    const struct list_head* const first = BPF_CORE_READ(probe, consumers.next);
    if (!first) return 0;
    return (__u64)BPF_CORE_READ(first, next) == begin + bpf_core_field_offset(struct uprobe___list, consumers);
  }
  if (!bpf_core_field_exists(any_pointer->consumers)) return 0;
  const struct uprobe___pointer* const probe = (const struct uprobe___pointer*)begin;
  const struct uprobe_consumer* const first = BPF_CORE_READ(probe, consumers);
  return first && !BPF_CORE_READ(first, next);
}

static long find_end(struct task_struct* task, struct vm_area_struct* mapping, __u64* end) {
  *end = mapping->vm_end;
  return 0;
}

/* Writes the words that have decided a walk into the mailbox of the thread, if the stack can be known again. `slot`:
 * the first area of the process. */
__noinline int tell_words(const struct scratch* scratch, __u32 slot, __u64 where, __u64 serial) {
  if (!scratch) return 0; /* never */
  struct heaptap_mailbox* const mailbox = find_mailbox(slot, where);
  if (!mailbox) return 0;
  mailbox->serial = serial;
  mailbox->count = 0;
  const __u32 count = scratch->words_read;
  if (count > HEAPTAP_MAILBOX_WORDS) return 0;
  if (scratch->stack.end != HEAPTAP_STACK_WHOLE && scratch->stack.end != HEAPTAP_STACK_TRUNCATED) return 0;
  if (!is_only_listener()) {
    mailbox->count = HEAPTAP_MAILBOX_OTHERS;
    return 0;
  }
  const __u64 begin = scratch->registers[HEAPTAP_DWARF_RSP] & ~7ULL;
  __u64 end = 0;
  /* While another thread changes the list of mappings, the next sample at this stack may have better luck. */
  if (bpf_find_vma(bpf_get_current_task_btf(), begin, find_end, &end, 0)) return 0;
  if (bpf_probe_read_kernel(mailbox->words, count * sizeof(__u64), scratch->words)) return 0;
  mailbox->stack_id = scratch->stack_id;
  mailbox->begin = begin;
  mailbox->end = end;
  mailbox->tid = bpf_get_current_pid_tgid();
  mailbox->count = count;
  return 0;
}

/* Takes back what tell_words has written, because the sample or its stack is a loss. */
__noinline int take_words_back(__u32 slot, __u64 where) {
  struct heaptap_mailbox* const mailbox = find_mailbox(slot, where);
  if (mailbox) mailbox->count = 0;
  return 0;
}

#endif /* HEAPTAP_AREAS_BPF_H_ */
