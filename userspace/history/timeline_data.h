// SPDX-License-Identifier: Apache-2.0
//
// What a reader gets from the history (timeline.h). Texts may hold any bytes.
#ifndef HEAPTAP_USERSPACE_HISTORY_TIMELINE_DATA_H_
#define HEAPTAP_USERSPACE_HISTORY_TIMELINE_DATA_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/history/point_rows.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::history {

struct KnownProcess {
  int64_t id = 0;
  std::string service = {};
  std::string command = {};
  pid_t pid = 0;
  uint64_t process_id = 0;
  absl::Time started = {};
  std::optional<absl::Time> ended = {};
  std::string how = {};  // as in Writer::EndProcess
};

// What processes of one subject held together.
struct TimelinePoint {
  absl::Time time = {};
  int processes = 0;
  pid_t pid = 0;  // of one of them
  uint64_t live_bytes = 0;
  uint64_t live_objects = 0;
  std::optional<int64_t> rss_bytes = {};    // the sum of the known ones
  std::optional<int64_t> limit_bytes = {};  // the greatest
  uint64_t allocated_bytes = 0;
  uint32_t lg_sample = 0;  // the greatest
  uint64_t lost = 0;
  std::map<int64_t, Held> rows = {};  // by path; 0: all others
};

struct TimelineFrame {
  profile::SourceFrame source = {};  // without a function: the place is all that is known
  std::string library = {};          // path of the file; "": unknown
  uint64_t offset = 0;               // in this file; without a file, an address
  bool is_inlined = false;
};

struct TimelinePath {
  int64_t id = 0;
  std::vector<TimelineFrame> frames = {};  // innermost first; none: unknown
};

struct Mark {
  absl::Time time = {};
  std::optional<pid_t> pid = {};
  std::string kind = {};  // start, end, dump, mark
  std::string text = {};
};

struct Timeline {
  std::string name = {};  // of the service
  std::vector<KnownProcess> processes = {};
  std::vector<TimelinePoint> points = {};  // by time
  std::vector<TimelinePath> paths = {};    // of the rows
  std::vector<Mark> marks = {};            // by time
};

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_TIMELINE_DATA_H_
