/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The sizes of the structs that the eBPF programs and the collector share, and where the last field of each lies: two
 * compilers and two languages must agree on them, and so must the collectors before and after an upgrade that keeps the
 * layout (userspace/bpf/kernel_books.h). No struct has a gap: as a key of a map its bytes are compared, and as a value
 * they are copied.
 */
#ifndef HEAPTAP_SHAPES_H_
#define HEAPTAP_SHAPES_H_

#include "bpf/books.h"
#include "bpf/commands.h"
#include "bpf/events.h"
#include "bpf/unwind.h"

#ifdef __cplusplus
#define HEAPTAP_ASSERT static_assert
#define HEAPTAP_ASSERT_NO_GAPS(type) static_assert(__has_unique_object_representations(struct type), #type " has gaps")
#else
#define HEAPTAP_ASSERT _Static_assert
#define HEAPTAP_ASSERT_NO_GAPS(type) _Static_assert(1, "C++ checks it")
#endif
#define HEAPTAP_ASSERT_STRUCT(type, size, last, at)                                            \
  HEAPTAP_ASSERT(sizeof(struct type) == (size), #type " has another size");                    \
  HEAPTAP_ASSERT(__builtin_offsetof(struct type, last) == (at), #type "." #last " has moved"); \
  HEAPTAP_ASSERT_NO_GAPS(type)

HEAPTAP_ASSERT_STRUCT(heaptap_configure, 56, reserved, 52);
HEAPTAP_ASSERT_STRUCT(heaptap_costs, 24, program_time, 16);
HEAPTAP_ASSERT_STRUCT(heaptap_count, 40, variance, 32);
HEAPTAP_ASSERT_STRUCT(heaptap_event, 240, memory, 56);
HEAPTAP_ASSERT_STRUCT(heaptap_figures, 40, tallies, 32);
HEAPTAP_ASSERT_STRUCT(heaptap_file, 32, last_used, 24);
HEAPTAP_ASSERT_STRUCT(heaptap_file_key, 16, generation, 12);
HEAPTAP_ASSERT_STRUCT(heaptap_fold, 40, reserved, 36);
HEAPTAP_ASSERT_STRUCT(heaptap_give_area, 24, reserved, 20);
HEAPTAP_ASSERT_STRUCT(heaptap_identify, 32, inode_address, 24);
HEAPTAP_ASSERT_STRUCT(heaptap_identity, 32, user, 28);
HEAPTAP_ASSERT_STRUCT(heaptap_invalidate_rules, 8, reserved, 4);
HEAPTAP_ASSERT_STRUCT(heaptap_limits, 8, max_tallies, 4);
HEAPTAP_ASSERT_STRUCT(heaptap_live, 48, record, 44);
HEAPTAP_ASSERT_STRUCT(heaptap_live_key, 16, address, 8);
HEAPTAP_ASSERT_STRUCT(heaptap_loss, 16, weight, 8);
HEAPTAP_ASSERT_STRUCT(heaptap_loss_key, 16, reserved, 12);
HEAPTAP_ASSERT_STRUCT(heaptap_marks, 16, interval_at, 8);
HEAPTAP_ASSERT_STRUCT(heaptap_owner_key, 8, uid, 4);
HEAPTAP_ASSERT_STRUCT(heaptap_process, 184, pending, 176);
HEAPTAP_ASSERT_STRUCT(heaptap_raw_stack, 1384, stack, 352);
HEAPTAP_ASSERT_STRUCT(heaptap_record, 72, free_tid, 68);
HEAPTAP_ASSERT_STRUCT(heaptap_row, 8, rule, 4);
HEAPTAP_ASSERT_STRUCT(heaptap_rows, 4032, rows, 0);
HEAPTAP_ASSERT_STRUCT(heaptap_rows_key, 8, node, 4);
HEAPTAP_ASSERT_STRUCT(heaptap_settings, 80, reserved, 76);
HEAPTAP_ASSERT_STRUCT(heaptap_stack, 1032, frames, 16);
HEAPTAP_ASSERT_STRUCT(heaptap_take_frees, 24, frees, 16);
HEAPTAP_ASSERT_STRUCT(heaptap_tallies_deleted, 8, tallies, 0);
HEAPTAP_ASSERT_STRUCT(heaptap_tally, 80, freed, 40);
HEAPTAP_ASSERT_STRUCT(heaptap_tally_key, 24, reserved, 20);
HEAPTAP_ASSERT_STRUCT(heaptap_thread_key, 16, reserved, 12);
HEAPTAP_ASSERT_STRUCT(heaptap_thread_name, 40, reserved, 36);
HEAPTAP_ASSERT_STRUCT(heaptap_triggers, 24, reserved, 20);
HEAPTAP_ASSERT_STRUCT(heaptap_untrack, 8, reserved, 4);
HEAPTAP_ASSERT_STRUCT(heaptap_unwind_frame, 40, rbx_at, 32);

#undef HEAPTAP_ASSERT_STRUCT
#undef HEAPTAP_ASSERT_NO_GAPS
#undef HEAPTAP_ASSERT

#endif /* HEAPTAP_SHAPES_H_ */
