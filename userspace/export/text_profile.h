// SPDX-License-Identifier: Apache-2.0
//
// What the textual heap profiles share: the choice and order of contexts, a context's addresses, the mapped libraries.
#ifndef HEAPTAP_USERSPACE_EXPORT_TEXT_PROFILE_H_
#define HEAPTAP_USERSPACE_EXPORT_TEXT_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/profile.h"

namespace heaptap::exporter {

// Stands for a call path that is not known: jeprof does not see a line "@" without an address and counts what follows
// for the context before it. No code can be at this address (it is not canonical), and it lies beyond the end of any
// program, in which jeprof looks for every address of no library (a small one it takes for a function); so readers show
// the bare number.
inline constexpr uint64_t kUnknownFrame = 0x7fffffffffffffff;

// A context and what it is sorted by, computed once.
struct Row {
  const profile::Context* context;
  profile::Estimate live;
  profile::Estimate allocated;
};

// The contexts that hold something or ever did, by live bytes, the largest first. Valid as long as the profile.
std::vector<Row> Rows(const profile::Profile& profile);

// Appends " 0x... 0x..." for a context's frames, or for an unknown path. Readers look up the first address as it is and
// the others less one, so that it lies in the call.
void AppendAddresses(const profile::Context& context, std::string& out);

// Appends text that the process or its user chose, on one line: control characters as \ooo, the kernel's way in
// /proc/PID/maps.
void AppendLineOf(absl::string_view text, std::string& out);

// Appends a "%warn <warning>" line for each warning; readers expect them before everything else.
void AppendWarnings(const profile::Profile& profile, std::string& out);

// Appends the section MAPPED_LIBRARIES, after an empty line.
void AppendMappedLibraries(const profile::Profile& profile, std::string& out);

// About how many bytes all that will take.
size_t EstimateSize(const profile::Profile& profile, absl::Span<const Row> rows);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_TEXT_PROFILE_H_
