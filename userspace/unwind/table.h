// SPDX-License-Identifier: Apache-2.0
//
// The unwind table of an ELF file: for each address of its code, how to leave the frame.
//
// Sources: .eh_frame, by its section or by PT_GNU_EH_FRAME (LSB Core 5.0 section 10.6.2), and .debug_frame where
// .eh_frame says nothing. The file is hostile; what is read of it has bounds, and time is linear in that but for one
// sort.
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

// Rows of one table; ClickHouse, the largest known, has 2.8 million.
inline constexpr uint64_t kMaxRows = 4 << 20;
// Bytes of one section; chrome's .eh_frame has 20 MiB.
inline constexpr uint64_t kMaxFrameBytes = 256 << 20;

using Row = heaptap_row;

struct Table {
  struct Statistics {
    uint64_t functions = 0;    // with rows
    uint64_t broken = 0;       // unreadable: they have no rules
    uint64_t outside = 0;      // not in executable code, or 4 GiB and more above its start: left out
    uint64_t overlapping = 0;  // cut where the next one begins, or left out for one that begins at the same address
    uint64_t unsupported = 0;  // rows of functions, before equal ones were merged, whose rule cannot be encoded
    bool compressed_debug_frame = false;  // there is one, and it was not read
  };

  uint64_t base = 0;  // link-time address of the first executable byte
  // Strictly ascending by pc; neighbours differ in their rules. Where functions leave a gap, and after the last, there
  // is a row of no rule.
  std::vector<Row> rows;
  Statistics statistics;
};

// Empty if the file says nothing about frames. InvalidArgument: what it says is broken beyond use, exceeds a bound, or
// there is no code. Other codes: reading failed.
absl::StatusOr<Table> BuildTable(const elf::File& file);

// The row that holds at `pc`, an address minus the table's base: the last one not above it; null if there is none.
const Row* Find(absl::Span<const Row> rows, uint32_t pc);

// The rule at a link-time address; 0 if there is none.
uint32_t RuleAt(const Table& table, uint64_t address);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_TABLE_H_
