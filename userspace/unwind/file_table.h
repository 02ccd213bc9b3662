// SPDX-License-Identifier: Apache-2.0
//
// An unwind table in the form of the eBPF programs: by offset in the file, because a mapping names a part of a file,
// not link-time addresses; and cut into the nodes of a search tree.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_UNWIND_FILE_TABLE_H_
#define HEAPTAP_USERSPACE_UNWIND_FILE_TABLE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bpf/unwind.h"
#include "userspace/elf/file.h"

namespace heaptap::unwind {

struct FileTable {
  uint64_t base = 0;  // file offset of pc 0
  // Strictly ascending by pc. Outside executable segments the rule is 0. Empty: the file has no unwind information.
  std::vector<heaptap_row> rows;

  friend bool operator==(const FileTable& a, const FileTable& b);
};

// Reads the table of a file. Errors as BuildTable.
absl::StatusOr<FileTable> ReadFileTable(const elf::File& file);

// The rule at an offset of the file; 0 if there is none.
uint32_t RuleAtOffset(const FileTable& table, uint64_t offset);

// The tree that bpf/unwind.h describes, with at least one row; nodes by number.
struct Tree {
  uint32_t levels = 0;
  std::vector<heaptap_rows> nodes;
};
Tree MakeTree(absl::Span<const heaptap_row> rows);

// The number of nodes of the tree of so many rows.
uint64_t CountNodes(uint64_t rows);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_FILE_TABLE_H_
