// SPDX-License-Identifier: Apache-2.0
//
// An unwind table in the form that the eBPF programs use. It is ordered by offset in the file, because a mapping names
// a part of a file, not link-time addresses. It is cut into the nodes of a search tree.
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

// Reads the table of a file. Has the errors of BuildTable.
absl::StatusOr<FileTable> ReadFileTable(const elf::File& file);

// The rule at an offset of the file; 0 if there is none.
uint32_t RuleAtOffset(const FileTable& table, uint64_t offset);

// The size of the tree (bpf/unwind.h) for this number of rows. Without rows it has one level, and no nodes.
uint32_t CountLevels(uint64_t rows);
uint64_t CountNodes(uint64_t rows);
// `count` nodes of the tree from number `first` on, or as many as there are.
std::vector<heaptap_rows> MakeNodes(absl::Span<const heaptap_row> rows, uint64_t first, uint64_t count);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_FILE_TABLE_H_
