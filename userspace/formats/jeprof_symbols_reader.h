// SPDX-License-Identifier: Apache-2.0
//
// Reads the names of a dump with symbols, as jeprof --raw and heaptap write it (jeprof_symbolized.h).
//
// Format: "--- symbol", "binary=<path>", lines of "0x<address> <name>--<name>", outermost name first, "---", then
// "--- heap" and the dump (ReadSymbols and ReadProfile of jeprof 5.3).
#ifndef HEAPTAP_USERSPACE_FORMATS_JEPROF_SYMBOLS_READER_H_
#define HEAPTAP_USERSPACE_FORMATS_JEPROF_SYMBOLS_READER_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::formats {

// Names by call address, innermost first.
using Symbols = absl::flat_hash_map<uint64_t, std::vector<profile::SourceFrame>>;

struct SymbolizedText {
  absl::string_view dump;  // a part of the text
  Symbols symbols = {};
};

// Text of another form has no symbols, and is the dump as a whole. `name`: the name of the file, for messages.
// InvalidArgument names the line and the mistake. Takes linear time. Thread-safe.
absl::StatusOr<SymbolizedText> SplitSymbolized(absl::string_view text, absl::string_view name);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_JEPROF_SYMBOLS_READER_H_
