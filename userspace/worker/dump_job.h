// SPDX-License-Identifier: Apache-2.0
//
// The reader's job on a dump: it parses the bytes, which may be hostile, and answers with the profile.
//
// The whole command could be confined instead, after it has opened all that it needs; but it opens the files with names
// only when it knows the profile. The workers and the answer take a tenth of the time of a report: 0.05 s of 0.6 s for
// a dump with 100,000 call paths (37 MB), whose answer has 25 MB.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_WORKER_DUMP_JOB_H_
#define HEAPTAP_USERSPACE_WORKER_DUMP_JOB_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/formats/dump_reader.h"
#include "userspace/worker/reader_job.h"

namespace heaptap::worker {

// The longest answer. Names that repeat can make it longer than the dump.
inline constexpr size_t kMaxDumpAnswerBytes = size_t{1} << 30;
// Functions that have names in a dump. The largest programs have a million.
inline constexpr size_t kMaxDumpSymbols = 1 << 22;
// The most sentences about what is missing.
inline constexpr size_t kMaxDumpWarnings = 1 << 16;

// The question of Job::kDump. `name`: of the file, for messages.
std::string DumpQuestion(absl::string_view name, formats::ReadThreads threads);

// Maps the file, so that only its profile takes memory. Has the errors of formats::ReadDump.
absl::Status ReadDumpFile(const ReaderInput& input, WritePart write);

// Writes a dump as bytes, in pieces, and reads it back. The bytes may be hostile: InvalidArgument if they break a
// promise of profile::Profile, or exceed a bound.
void EncodeDump(const formats::Dump& dump, WritePart write);
absl::StatusOr<formats::Dump> DecodeDump(absl::string_view bytes);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_DUMP_JOB_H_
