// SPDX-License-Identifier: Apache-2.0
//
// Reads the unwind tables of several files in parallel: a program maps all its libraries within milliseconds, and the
// largest tables take half a second.
#ifndef HEAPTAP_USERSPACE_UNWIND_READ_FILES_H_
#define HEAPTAP_USERSPACE_UNWIND_READ_FILES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::unwind {

// The tables of the open files, in their order; reads the largest files first. Uses as many threads as there are
// processors, at most four, and returns when all have ended. Thread-safe. Errors as ReadFileTable.
std::vector<absl::StatusOr<FileTable>> ReadFileTables(absl::Span<const int> files);

// The table of one open file.
absl::StatusOr<FileTable> ReadFileTable(int file);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_READ_FILES_H_
