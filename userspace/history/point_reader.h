// SPDX-License-Identifier: Apache-2.0
//
// Reads the points of some processes. Not thread-safe. Errors: see database.h.
#ifndef HEAPTAP_USERSPACE_HISTORY_POINT_READER_H_
#define HEAPTAP_USERSPACE_HISTORY_POINT_READER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/history/database.h"
#include "userspace/history/point_rows.h"
#include "userspace/history/timeline_data.h"

namespace heaptap::history {

class PointReader {
 public:
  // Refers to both arguments.
  PointReader(Database& database, const std::vector<KnownProcess>& processes);

  // The times of the level's points, of any process in the database, from `since` to before `until`.
  absl::StatusOr<std::vector<int64_t>> Times(size_t level, int64_t since, int64_t until);

  // The time of the processes' oldest point in the level; none: they have no point there.
  absl::StatusOr<std::optional<int64_t>> First(size_t level);

  // The arguments are the time, the process, what the process held, and its rows. The rows and the time of the
  // TimelinePoint are not filled in.
  using Visit = std::function<void(int64_t, int64_t, const TimelinePoint&, const Rows&)>;
  // Visits the points at the `wanted` times, from `since` to before `until`. The points of one process come in the
  // order of time.
  absl::Status Read(size_t level, int64_t since, int64_t until, const std::set<int64_t>& wanted, const Visit& visit);

 private:
  absl::Status Decode(Statement& points, int64_t since, const std::set<int64_t>& wanted, const Visit& visit);

  Database& database_;
  const std::vector<KnownProcess>& processes_;
  absl::flat_hash_map<int64_t, pid_t> pids_;  // by process
};

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_POINT_READER_H_
