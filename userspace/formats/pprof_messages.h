// SPDX-License-Identifier: Apache-2.0
//
// The messages of a file in the format of pprof, which may be hostile. The functions and texts that they name by number
// may not exist: pprof_reader.h looks them up.
#ifndef HEAPTAP_USERSPACE_FORMATS_PPROF_MESSAGES_H_
#define HEAPTAP_USERSPACE_FORMATS_PPROF_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/mappings.h"

namespace heaptap::formats::pprof {

// The bound for each of these in one profile: samples, locations, functions, lines and texts. A file of 1 GiB could
// have a hundred times as many of the smallest ones.
inline constexpr size_t kMaxPprofEntries = 1 << 22;
// Functions of one call path, including inlined ones.
inline constexpr size_t kMaxPprofFunctions = 4096;
// Values of one sample. Go's heap profiles have four.
inline constexpr size_t kMaxPprofValues = 64;

// For messages.
inline constexpr char kPprofProfile[] = "a pprof profile";
inline absl::Status WrongPprof(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not ", kPprofProfile, ": ", what));
}

struct ValueType {
  uint64_t type = 0;
  uint64_t unit = 0;
};

struct Function {
  uint64_t name = 0;
  uint64_t linkage_name = 0;
  uint64_t file = 0;
};

struct Line {
  uint64_t function = 0;
  uint32_t line = 0;
};

struct Location {
  uint64_t mapping = 0;
  uint64_t address = 0;
  size_t first_line = 0;  // index into the lines of all locations, innermost first
  size_t lines = 0;
};

// Texts are indexes into `texts`. Views are parts of the file.
struct Messages {
  std::vector<ValueType> value_types;
  ValueType period_type;
  int64_t period = 0;
  std::vector<absl::string_view> texts;
  std::vector<uint64_t> comments;
  std::vector<absl::string_view> samples;
  absl::flat_hash_map<uint64_t, Function> functions;
  absl::flat_hash_map<uint64_t, Location> locations;
  std::vector<uint64_t> location_order;  // their ids
  std::vector<Line> lines;
  elf::Mappings mappings;
};

// InvalidArgument: damaged, or more than the bounds above. Takes linear time. Thread-safe.
absl::StatusOr<Messages> ReadMessages(absl::string_view bytes);

}  // namespace heaptap::formats::pprof

#endif  // HEAPTAP_USERSPACE_FORMATS_PPROF_MESSAGES_H_
