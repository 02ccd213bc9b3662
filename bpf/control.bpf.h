/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Writing the collector's part of a process's control block (allocator/include/heaptap/contract.h).
 */
#ifndef HEAPTAP_CONTROL_BPF_H_
#define HEAPTAP_CONTROL_BPF_H_

#include "allocator/include/heaptap/contract.h"
#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"
#include "bpf/process.bpf.h"

/* Whether this is a control block whose fields lie where the programs write them. */
static __always_inline int is_control_block(const struct heaptap_control* control) {
  return control->magic == HEAPTAP_CONTROL_MAGIC && control->version == HEAPTAP_CONTROL_VERSION &&
         control->size >= sizeof(*control);
}

static __always_inline void write_word(__u64 control, __u64 offset, __u32 word) {
  bpf_probe_write_user((void*)(control + offset), &word, sizeof(word));
}

/* Writes who records the process, and at which rate. With a forged address a process overwrites only its own memory. */
static __always_inline void write_control(__u64 control) {
  const struct heaptap_settings* defaults = read_settings();
  if (!defaults || !defaults->everyone || defaults->collector_pid == 0 || !is_in_groups(defaults)) return;
  struct heaptap_control block;
  if (bpf_probe_read_user(&block, sizeof(block), (const void*)control)) return;
  /* A PID is there already: another collector's, or one that a fork has copied. */
  if (!is_control_block(&block) || block.collector_pid != 0) return;
  write_word(control, offsetof(struct heaptap_control, collector_lg_sample), defaults->lg_sample);
  write_word(control, offsetof(struct heaptap_control, collector_follows), 1);
  write_word(control, offsetof(struct heaptap_control, collector_pid), defaults->collector_pid);
}

#endif /* HEAPTAP_CONTROL_BPF_H_ */
