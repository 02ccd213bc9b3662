/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Maps only, for the test of reading another build's books.
 */
#include "tests/unit/other_layout.h"

#include "bpf/kernel.h"

#define MAP_OF(name, kind, key_type, value_type) \
  struct {                                       \
    __uint(type, kind);                          \
    __uint(max_entries, OTHER_ENTRIES);          \
    __uint(map_flags, BPF_F_NO_PREALLOC);        \
    __type(key, key_type);                       \
    __type(value, value_type);                   \
  } name SEC(".maps")

MAP_OF(processes, BPF_MAP_TYPE_HASH, __u32, struct other_process);
MAP_OF(stacks, BPF_MAP_TYPE_HASH, __u64, struct other_stack);
MAP_OF(tallies, BPF_MAP_TYPE_HASH, struct other_tally_key, struct other_tally);
MAP_OF(losses, BPF_MAP_TYPE_HASH, struct other_loss_key, struct other_loss);
MAP_OF(unnoticed, BPF_MAP_TYPE_HASH, __u64, struct other_process);
MAP_OF(forgotten, BPF_MAP_TYPE_HASH, __u64, __u8);

MAP_OF(short_stacks, BPF_MAP_TYPE_HASH, __u64, struct other_short_stack);

/* What cannot be read. */
MAP_OF(nameless, BPF_MAP_TYPE_HASH, __u32, struct other_nameless_process);
MAP_OF(bits, BPF_MAP_TYPE_HASH, __u32, struct other_bit_process);
MAP_OF(pointed, BPF_MAP_TYPE_HASH, __u32, struct other_pointed_process);
MAP_OF(keyed, BPF_MAP_TYPE_HASH, struct other_loss_key, struct other_process);
MAP_OF(tallies_of_one, BPF_MAP_TYPE_HASH, struct other_tally_key, struct other_tally_of_one);
MAP_OF(by_processor, BPF_MAP_TYPE_PERCPU_HASH, struct other_tally_key, struct other_tally);
MAP_OF(narrow, BPF_MAP_TYPE_HASH, __u64, struct other_narrow_stack);
MAP_OF(single, BPF_MAP_TYPE_HASH, __u64, struct other_single_stack);
MAP_OF(endless, BPF_MAP_TYPE_HASH, __u64, struct other_endless_stack);
MAP_OF(huge, BPF_MAP_TYPE_HASH, __u64, struct other_huge_stack);
MAP_OF(half_keyed, BPF_MAP_TYPE_HASH, __u32, struct other_stack);
