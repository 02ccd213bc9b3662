// SPDX-License-Identifier: Apache-2.0
//
// The formats in which a client may have the profile of a recorded process (`heaptap dump --format`, GET
// /pid/PID/heap?format=). Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_FORMATS_OFFERED_H_
#define HEAPTAP_USERSPACE_FORMATS_OFFERED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/profile/snapshot.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::formats {

// A program may have 65,536 call paths of 127 functions whose names have 16 KiB each: all its names would take
// terabytes.
inline constexpr uint64_t kMaxCollapsedBytes = 128 << 20;

struct OfferedFormat {
  const char* name;
  const char* use;             // for people: what reads it
  const char* content_type;    // of HTTP
  bool has_names = false;      // `write` asks for names
  bool repeats_names = false;  // the text repeats a name for each call path that has it
  bool has_blocks = false;     // the profile has the sizes and ages of live blocks
  // OutOfRange: the text would be too long.
  absl::StatusOr<std::string> (*write)(const profile::Snapshot& snapshot, const profile::FindSourceFrames& find);
};

// The first one is the default.
absl::Span<const OfferedFormat> OfferedFormats();
// Null: there is no such format.
const OfferedFormat* FindOffered(absl::string_view name);
// "heap_v2, gperftools or pprof", for messages.
std::string OfferedNames();

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_OFFERED_H_
