// SPDX-License-Identifier: Apache-2.0
//
// What the call paths of a process held at one moment, as bytes of the database.
//
// A point is whole (all rows) or a change (the rows that differ from the point before; a row of zeros is gone). Format:
// the rows come in the order of their numbers. Each row is four to six numbers in base 128, like protobuf's varints:
// the least digit comes first, and the highest bit of a byte is set if another byte follows. They are the row's number
// minus the number of the row before, the live bytes, the live objects, four times the live samples plus kHasFreed and
// kHasDeviation, and the numbers that these two flags announce: the freed samples, the standard error. A row of an
// older point has four numbers, the last of which is the live samples.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_HISTORY_POINT_ROWS_H_
#define HEAPTAP_USERSPACE_HISTORY_POINT_ROWS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace heaptap::history {

struct Held {
  uint64_t live_bytes = 0;
  uint64_t live_objects = 0;
  uint64_t samples = 0;
  // Samples, live or freed, since the books began. The difference between two points of a path tells how many live
  // samples both points can have in common. 0: unknown, as for path 0, which stands for different paths at each point.
  uint64_t allocated_samples = 0;
  uint64_t deviation = 0;  // the standard error of live_bytes, in bytes

  bool IsZero() const { return live_bytes == 0 && live_objects == 0 && samples == 0; }
  Held& operator+=(const Held& other);
  friend bool operator==(const Held&, const Held&) = default;
};

// The standard error if all samples of the row count alike (profile::VarianceOfEqualSamples). This error needs no room
// in the database, so a row whose error is nearly the same should have exactly this error.
uint64_t DeviationOfEqualSamples(const Held& held);

// By the number of the path in its process; 0: all other paths together. No row is zero.
using Rows = std::map<uint64_t, Held>;

std::string EncodeRows(const Rows& rows);
std::string EncodeChange(const Rows& before, const Rows& after);

// How a point's bytes are to be read. The database keeps the sum of these flags.
inline constexpr int64_t kWholePoint = 1;
inline constexpr int64_t kSamplesPoint = 2;  // its rows tell the freed samples and the standard error

// Applies the bytes of a point to the rows of the point before it. InvalidArgument: the bytes have another format.
absl::Status Apply(int64_t form, absl::string_view bytes, Rows& rows);

std::string EncodeNumbers(absl::Span<const uint64_t> numbers);
absl::StatusOr<std::vector<uint64_t>> DecodeNumbers(absl::string_view bytes);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_POINT_ROWS_H_
