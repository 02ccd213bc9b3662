// SPDX-License-Identifier: Apache-2.0
//
// Unwind tables of several files at once: a program maps its libraries within milliseconds, and the largest tables take
// half a second.
#ifndef HEAPTAP_USERSPACE_UNWIND_READ_FILES_H_
#define HEAPTAP_USERSPACE_UNWIND_READ_FILES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::unwind {

// The tables of open files, in their order; those of the largest files are begun first. Uses as many threads as there
// are processors, up to four, and returns when all have ended. Thread-safe. Errors as ReadFileTable.
std::vector<absl::StatusOr<FileTable>> ReadFileTables(absl::Span<const int> files);

// The table of one.
absl::StatusOr<FileTable> ReadFileTable(int file);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_READ_FILES_H_
