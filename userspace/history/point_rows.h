// SPDX-License-Identifier: Apache-2.0
//
// What the call paths of a process held at one moment, as bytes of the database.
//
// A point is whole (all rows) or a change (the rows that differ from the point before; a row of zeros is gone). Form:
// for each row, by number, four to six numbers in base 128, least digit first, the highest bit of a byte set if
// another one follows (as protobuf's varints): the number minus that of the row before, live bytes, live objects, four
// times the live samples plus kHasFreed and kHasDeviation, and the numbers that these two announce: the freed samples,
// the standard error. Older points have four numbers a row, of which the last is the live samples.
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
  // Live or freed, since the books began: the difference between two points of a path tells how many live samples both
  // can have. 0: unknown, as for path 0, which stands for other paths at each point.
  uint64_t allocated_samples = 0;
  uint64_t deviation = 0;  // the standard error of live_bytes, in bytes

  bool IsZero() const { return live_bytes == 0 && live_objects == 0 && samples == 0; }
  Held& operator+=(const Held& other);
  friend bool operator==(const Held&, const Held&) = default;
};

// The standard error if all samples of the row count alike (profile::VarianceOfEqualSamples). It needs no room in the
// database, so a row whose error is nearly that should have just that.
uint64_t DeviationOfEqualSamples(const Held& held);

// By the number of the path in its process; 0: all other paths together. No row is zero.
using Rows = std::map<uint64_t, Held>;

std::string EncodeRows(const Rows& rows);
std::string EncodeChange(const Rows& before, const Rows& after);

// How a point's bytes are to be read, as the database keeps it: a sum of these.
inline constexpr int64_t kWholePoint = 1;
inline constexpr int64_t kSamplesPoint = 2;  // its rows tell the freed samples and the standard error

// Applies the bytes of a point to the rows of the one before. InvalidArgument: they have another form.
absl::Status Apply(int64_t form, absl::string_view bytes, Rows& rows);

std::string EncodeNumbers(absl::Span<const uint64_t> numbers);
absl::StatusOr<std::vector<uint64_t>> DecodeNumbers(absl::string_view bytes);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_POINT_ROWS_H_
