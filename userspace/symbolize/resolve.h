// SPDX-License-Identifier: Apache-2.0
//
// Finds the frames of addresses in one file, from all sources.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/symbolize/answer.h"

namespace heaptap::symbolize {

struct Question {
  int fd = -1;
  // Open files at DebugPaths and at SharedPaths; negative: there is none.
  absl::Span<const int> debug_files = {};
  absl::Span<const int> shared_files = {};
  absl::Span<const uint64_t> file_offsets = {};  // ascending
  Stage last_stage = Stage::kDwarf;              // the last stage to try
};

// Answers in the form of userspace/symbolize/answer.h, by index of the file offset. The files may be hostile, and
// libraries that are not made for such files read them: to be run by a reader without rights. InvalidArgument: the file
// is not ELF or unreadable.
absl::Status Resolve(const Question& question, absl::FunctionRef<void(absl::string_view)> write);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_
