// SPDX-License-Identifier: Apache-2.0
//
// The unwind table of an ELF file: for each address of its code, the rule by which to leave the frame.
//
// Sources: .eh_frame, by its section or by PT_GNU_EH_FRAME (LSB Core 5.0 section 10.6.2), and .debug_frame where
// .eh_frame has nothing (Go's own .debug_frame is not used, nor one that is compressed by zstd). Where neither has a
// rule, elf/known_code.h is used. The file may be hostile: the number of bytes read from it is bounded, and the time is
// linear in that number except for one sort.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_UNWIND_TABLE_H_
#define HEAPTAP_USERSPACE_UNWIND_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bpf/unwind.h"
#include "userspace/elf/file.h"

namespace heaptap::unwind {

// Rows of one table. ClickHouse, the largest known, has 2.8 million.
inline constexpr uint64_t kMaxRows = 4 << 20;
// Bytes of one section. The .eh_frame of Chrome has 20 MiB.
inline constexpr uint64_t kMaxFrameBytes = 256 << 20;

using Row = heaptap_row;

struct Table {
  struct Statistics {
    uint64_t functions = 0;    // with rows
    uint64_t broken = 0;       // unreadable, without rules
    uint64_t outside = 0;      // left out: not in executable code, or 4 GiB and more above its start
    uint64_t overlapping = 0;  // cut where the next one begins, or left out for another function at the same address
    uint64_t unsupported = 0;  // rows (before equal ones are merged) whose rule cannot be encoded
  };

  uint64_t base = 0;  // link-time address of the first executable byte
  // Strictly ascending by pc; neighbours have different rules. A row with rule 0 covers each gap between functions, and
  // everything after the last one. In a file of Go these rows have HEAPTAP_RULE_FRAME_POINTER, and so has everything
  // before the first function.
  std::vector<Row> rows;
  Statistics statistics;
};

// Empty if the file has no information about frames. InvalidArgument: the information is broken beyond use or exceeds a
// bound, or the file has no code. Other codes: reading failed.
absl::StatusOr<Table> BuildTable(const elf::File& file);

// The row for `pc`, an address minus the table's base: the last row at or below it; null if there is none.
const Row* Find(absl::Span<const Row> rows, uint32_t pc);

// The rule at a link-time address; 0 if there is none.
uint32_t RuleAt(const Table& table, uint64_t address);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_TABLE_H_
