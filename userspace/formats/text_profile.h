// SPDX-License-Identifier: Apache-2.0
//
// The common parts of textual heap profiles: choice and order of contexts, their addresses, the mapped libraries.
#ifndef HEAPTAP_USERSPACE_FORMATS_TEXT_PROFILE_H_
#define HEAPTAP_USERSPACE_FORMATS_TEXT_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/profile.h"

namespace heaptap::formats {

// The address of an unknown call path. jeprof overlooks a line "@" without an address, and adds its counts to the
// context before it. The address is not canonical, so no code lies there; and it is above every program, where jeprof
// looks up addresses outside of all libraries (it takes a low address for a function). So readers show the number.
inline constexpr uint64_t kUnknownFrame = 0x7fffffffffffffff;

// A context and its sort key.
struct Row {
  const profile::Context* context;
  profile::Estimate live;
  profile::Estimate allocated;
};

// The contexts with allocations, by live bytes, the largest first. Valid as long as the profile.
std::vector<Row> Rows(const profile::Profile& profile);

// Appends " 0x... 0x..." for the frames of a context, or for an unknown path. Readers look up the first address as it
// is, so it is written as an address inside the call; from the others they subtract one.
void AppendAddresses(const profile::Context& context, std::string& out);

// Appends text that the process or its user chose, on one line: control characters become \ooo as in /proc/PID/maps.
void AppendLineOf(absl::string_view text, std::string& out);

// The period with which readers correct the counts: the profile's, or less, so that the counts of samples that were
// taken at shorter intervals are not rounded up.
uint64_t WrittenPeriod(const profile::Profile& profile, absl::Span<const Row> rows);

// Appends a "%warn <warning>" line for each warning. Readers expect these lines first.
void AppendWarnings(const profile::Profile& profile, std::string& out);

// Comments in the section MAPPED_LIBRARIES, which other readers skip. No comment has a '=', which pprof takes for an
// assignment.
//   # time <RFC 3339>                       when the profile was taken
//   # period <bytes>                        of the profile, where the first line has another one
//   # several periods                       some samples were taken at other intervals
//   # samples <stack> t<thread>: <live samples>: <error> [<allocated samples>: <error>]
//     of the stack with this number in the file, from 1; t*: of all threads; the standard errors are in bytes. Only
//     where they are not those that follow from the counts: for samples of different intervals or sizes.
//   # cut <stack>                           the outer frames of the stack with this number are missing
//   # build-id <start> <hexadecimal digits> of the file of the mapping that begins at this address
inline constexpr absl::string_view kTimeComment = "# time ";
inline constexpr absl::string_view kPeriodComment = "# period ";
inline constexpr absl::string_view kSeveralPeriodsComment = "# several periods";
inline constexpr absl::string_view kSamplesComment = "# samples ";
inline constexpr absl::string_view kCutComment = "# cut ";
inline constexpr absl::string_view kBuildIdComment = "# build-id ";

// Appends the section MAPPED_LIBRARIES, after an empty line. `rows`: the stacks, as they were written with `period`.
void AppendMappedLibraries(const profile::Profile& profile, absl::Span<const Row> rows, uint64_t period,
                           std::string& out);

// The approximate number of bytes of the text.
size_t EstimateSize(const profile::Profile& profile, absl::Span<const Row> rows);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_TEXT_PROFILE_H_
