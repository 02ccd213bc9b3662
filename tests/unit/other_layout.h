/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Books as another build might keep them (tests/unit/other_layout.bpf.c): the names are those of bpf/books.h or
 * of older versions, the order and the sizes are not, and there is more.
 */
#ifndef HEAPTAP_TESTS_UNIT_OTHER_LAYOUT_H_
#define HEAPTAP_TESTS_UNIT_OTHER_LAYOUT_H_

#include <linux/types.h>

#define OTHER_ENTRIES 20000
#define OTHER_FRAMES 200
#define OTHER_FEW_FRAMES 4

struct other_process {
  __u16 flags;
  char comment[21];
  __u64 allocated_weight;
  __u32 parent_tgid;
  __u64 id;
};

struct other_tally_key {
  __u32 tid;
  __u32 cgroup;
  __u64 stack_id;
  __u64 process_id;
};

struct other_count {
  __u64 weighted_objects;
  __u32 objects;
  __u64 weight;
  __u64 largest;
  __u64 bytes;
};

struct other_tally {
  __u8 state;
  struct other_count freed;
  struct {
    __u64 reallocated;
    const struct other_count allocated;
  };
};

typedef __u64 other_address;

struct other_stack {
  other_address frames[OTHER_FRAMES];
  __u16 end;
  __u16 count;
};

struct other_short_stack {
  __u64 end;
  __u64 count;
  other_address frames[OTHER_FEW_FRAMES];
};

struct other_loss_key {
  __u64 reason;
  __u64 process_id;
};

struct other_loss {
  __u64 weight;
  __u64 cause;
  __u64 events;
};

/* From here on what cannot be read. */

struct other_nameless_process {
  __u64 identity;
  __u32 flags;
};

struct other_bit_process {
  __u64 id : 48;
  __u64 flags : 16;
};

struct other_pointed_process {
  struct other_process* id;
  __u32 flags;
};

struct other_tally_of_one {
  struct other_count allocated;
  struct {
    __u64 objects;
    __u64 bytes;
    __u64 weight;
  } freed;
};

struct other_narrow_stack {
  __u32 count;
  __u32 end;
  __u32 frames[OTHER_FRAMES];
};

struct other_single_stack {
  __u32 count;
  __u32 end;
  __u64 frames;
};

struct other_endless_stack {
  __u32 count;
  __u32 end;
  __u64 frames[];
};

struct other_huge_stack {
  __u32 count;
  __u32 end;
  __u64 frames[10000];
};

#endif /* HEAPTAP_TESTS_UNIT_OTHER_LAYOUT_H_ */
