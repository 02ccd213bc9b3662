// SPDX-License-Identifier: Apache-2.0
//
// All that can be found out about addresses in one file.
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
  Stage last_stage = Stage::kDwarf;              // what is tried at most
};

// Answers in the form of userspace/symbolize/answer.h, by index of the file offset. To be run by RunConfined: opens
// what it needs, seals, and reads the file only then. False: the file is not ELF, or could not be read.
bool Resolve(const Question& question, const Confined& confined);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_RESOLVE_H_
