// SPDX-License-Identifier: Apache-2.0
//
// Finds the frames of addresses in one file, from all sources.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/symbolize/answer.h"
#include "userspace/symbolize/confined.h"

namespace heaptap::symbolize {

struct Question {
  int fd = -1;
  absl::string_view mapped_path = {};
  absl::string_view debug_root = {};
  absl::Span<const uint64_t> file_offsets = {};  // ascending
  Stage last_stage = Stage::kDwarf;              // the last stage to try
};

// Answers in the form of userspace/symbolize/answer.h, by index of the file offset. To be run by RunConfined: opens
// debug files, seals the process, and only then reads symbols and debug information. False: the file is not ELF or
// unreadable.
bool Resolve(const Question& question, const Confined& confined);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_
