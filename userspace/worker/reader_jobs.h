// SPDX-License-Identifier: Apache-2.0
//
// What a reader can do (worker.h), and the questions and answers of its jobs. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_READER_JOBS_H_
#define HEAPTAP_USERSPACE_WORKER_READER_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/process/allocator_probes.h"
#include "userspace/process/control_block.h"
#include "userspace/process/malloc_traits.h"
#include "userspace/symbolize/answer.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/unwind/file_table.h"
#include "userspace/unwind/table.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/reader_job.h"

namespace heaptap::worker {

// The answer to Job::kDebugLinks. Without a question, it is about the file. If the question is the links of a file, it
// is about the first of Request::descriptors and Request::paths that is the debug file for these links (IsDebugFile);
// NotFound if there is none.
struct FileFacts {
  FileVersion version = {};
  symbolize::DebugLinks links = {};
};
absl::StatusOr<FileFacts> DecodeFacts(absl::string_view answer);

// The question of Job::kSymbols. The answer is for symbolize::ReadAnswer.
struct SymbolsHead {
  // How many of Request::descriptors are debug files, and how many of the next ones are files with shared debug
  // information.
  uint32_t debug_files = 0;
  uint32_t shared_files = 0;
  // How many of Request::paths are DebugPaths. The others are SharedPaths.
  uint32_t debug_paths = 0;
  uint32_t last_stage = 0;  // symbolize::Stage
};
std::string SymbolsQuestion(const SymbolsHead& head, absl::Span<const uint64_t> file_offsets);

// The answer to Job::kTable: the version of the file, its build-id, and its unwind table. The job has the errors of
// unwind::ReadFileTable. After such an error, the answer has the version, and the build-id if the file is ELF.
struct IdentityOfFile {
  FileVersion version = {};
  std::string build_id = {};  // bytes; empty: none
};
struct TableOfFile {
  IdentityOfFile identity = {};
  unwind::FileTable table = {};
};
inline constexpr uint64_t kMaxTableBytes = unwind::kMaxRows * sizeof(heaptap_row) + 4096;
// Also reads an answer without a table.
absl::StatusOr<IdentityOfFile> DecodeIdentity(absl::string_view answer);
absl::StatusOr<TableOfFile> DecodeTable(absl::string_view answer);

// The answer to Job::kAllocator: the version of the file, and what it has of an allocator. The job has the errors of
// process::ReadAllocatorProbes.
struct AllocatorOfFile {
  FileVersion version = {};
  process::AllocatorProbes probes = {};  // without addresses and arguments
  std::optional<process::ControlPlace> control = {};
};
absl::StatusOr<AllocatorOfFile> DecodeAllocator(absl::string_view answer);

// The answer to Job::kMalloc. The job has the errors of elf::File::Open.
absl::StatusOr<process::MallocTraits> DecodeMalloc(absl::string_view answer);

ReaderJobs AllReaderJobs();

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_READER_JOBS_H_
