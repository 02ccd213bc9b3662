// SPDX-License-Identifier: Apache-2.0
//
// How fine the history is, and for how long it is kept.
//
// The first level has all points that are taken; each other level has the first point in each of its steps. The points
// of one process and level in one window are a chain: a whole point, then changes (point_rows.h). Whole windows are
// removed, so no chain loses its beginning. Times are milliseconds since 1970 in UTC.
#ifndef HEAPTAP_USERSPACE_HISTORY_LEVELS_H_
#define HEAPTAP_USERSPACE_HISTORY_LEVELS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace heaptap::history {

struct Level {
  absl::Duration step;
  absl::Duration age;  // of the oldest points
};

inline constexpr size_t kLevels = 3;
inline const std::array<Level, kLevels>& Levels() {
  static const std::array<Level, kLevels> levels = {{{absl::Seconds(10), absl::Hours(1)},
                                                     {absl::Minutes(1), absl::Hours(24)},
                                                     {absl::Minutes(10), absl::Hours(24 * 14)}}};
  return levels;
}

// The number of steps in a chain. Longer chains make the database smaller, but reading a single moment slower.
inline constexpr int kStepsOfWindow = 30;

inline int64_t StepOf(size_t level, int64_t time) { return time / absl::ToInt64Milliseconds(Levels()[level].step); }
inline int64_t WindowOf(size_t level, int64_t time) { return StepOf(level, time) / kStepsOfWindow; }
inline int64_t WindowBegin(size_t level, int64_t time) {
  return WindowOf(level, time) * kStepsOfWindow * absl::ToInt64Milliseconds(Levels()[level].step);
}

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_LEVELS_H_
