// SPDX-License-Identifier: Apache-2.0
//
// The call paths of a timeline, with names. Not thread-safe. Errors: see database.h.
#ifndef HEAPTAP_USERSPACE_HISTORY_PATH_NAMES_H_
#define HEAPTAP_USERSPACE_HISTORY_PATH_NAMES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/history/database.h"
#include "userspace/history/timeline_data.h"

namespace heaptap::history {

// Paths by their number in a process.
using PathNumbers = absl::flat_hash_map<uint64_t, int64_t>;
using PathsOfProcesses = std::map<int64_t, PathNumbers>;

absl::StatusOr<PathsOfProcesses> ReadPathNumbers(Database& database, absl::Span<const KnownProcess> processes);

// Paths have equal keys if they have the same functions in files of the same names, so a path keeps its key in another
// build of a program. The key of the outermost frame comes last: the key of the first frames is a prefix of the key of
// all frames.
std::string PathKey(absl::Span<const TimelineFrame> frames);

struct NamedPaths {
  std::vector<TimelinePath> paths = {};
  // For each path, the path that stands for all paths with the same PathKey.
  absl::flat_hash_map<int64_t, int64_t> same = {};
};
// OutOfRange: the names take too much memory.
absl::StatusOr<NamedPaths> ReadPaths(Database& database, const std::set<int64_t>& ids);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_PATH_NAMES_H_
