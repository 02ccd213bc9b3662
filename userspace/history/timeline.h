// SPDX-License-Identifier: Apache-2.0
//
// Reads the history: what a service, a command or a process held over time, or at one moment.
//
// Each call opens the file anew, and sees it as it was at that moment, while others write. Errors: NotFound: nothing is
// known of the subject, or nothing that the client may see; DataLoss, DeadlineExceeded: see database.h. Functions here
// are thread-safe.
#ifndef HEAPTAP_USERSPACE_HISTORY_TIMELINE_H_
#define HEAPTAP_USERSPACE_HISTORY_TIMELINE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/history/timeline_data.h"

namespace heaptap::history {

// Whether the client may see processes of this owner.
using Sees = std::function<bool(std::optional<uid_t>)>;

// A moment as messages and pages show it, in local time.
std::string TimeText(absl::Time time);

struct Subject {
  std::optional<std::string> name = {};  // of a service or a command
  std::optional<pid_t> pid = {};         // the latest process with this PID
};

struct Range {
  absl::Time since = absl::InfinitePast();
  absl::Time until = absl::InfiniteFuture();
  size_t points = 600;  // at most, evenly spread
  size_t paths = 200;   // those that held most; the others are path 0
};

absl::StatusOr<Timeline> ReadTimeline(const std::string& file, const Subject& subject, const Range& range,
                                      const Sees& sees);

// The timeline has one point: the last one at or before `time`. NotFound also if no process of the subject ran then.
absl::StatusOr<Timeline> ReadMoment(const std::string& file, const Subject& subject, absl::Time time, const Sees& sees);

struct Service {
  std::string name = {};
  absl::Time first = {};
  absl::Time last = {};
  uint64_t processes = 0;
  uint64_t running = 0;
};
absl::StatusOr<std::vector<Service>> ReadServices(const std::string& file, const Sees& sees);

// The number of a process in the database.
absl::StatusOr<int64_t> FindProcess(const std::string& file, pid_t pid, uint64_t process_id);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_TIMELINE_H_
