// SPDX-License-Identifier: Apache-2.0
//
// Writes points of processes, their call paths and names into the history. Not thread-safe; other threads may read the
// file meanwhile (timeline.h), or add marks.
//
// Texts of processes are hostile; they are bound as values and never become SQL. Errors: see database.h.
#ifndef HEAPTAP_USERSPACE_HISTORY_WRITER_H_
#define HEAPTAP_USERSPACE_HISTORY_WRITER_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/history/database.h"
#include "userspace/history/levels.h"
#include "userspace/history/point_rows.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::history {

// One process image.
struct ProcessFacts {
  std::string service = {};
  std::string command = {};
  pid_t pid = 0;
  uint64_t process_id = 0;
  std::optional<uid_t> owner = {};
  absl::Time started = {};
};

struct Point {
  uint64_t live_bytes = 0;
  uint64_t live_objects = 0;
  std::optional<int64_t> rss_bytes = {};
  std::optional<int64_t> limit_bytes = {};  // of its memory control group
  uint64_t allocated_bytes = 0;             // since the recording of the process began
  uint32_t lg_sample = 0;
  uint64_t lost = 0;  // events
  Rows rows = {};
};

// A version of a file with code. `path` and `version` may hold any bytes.
struct CodeFile {
  std::string path = {};
  std::string version = {};  // equal for equal contents
};

// Offset 0 of file 0: an unknown place.
struct FileOffset {
  int64_t file = 0;
  uint64_t offset = 0;
};

class Writer {
 public:
  // `most_bytes`: the bound for the file and its log together, at least kLeastBytes. Errors: also those of
  // OpenForWriting.
  static absl::StatusOr<std::unique_ptr<Writer>> Open(const std::string& path, uint64_t most_bytes);

  // Everything between Begin and Commit is written together, or nothing is. Unavailable: another program keeps the log
  // from being emptied.
  absl::Status Begin();
  absl::Status Commit();
  // After this, the ids of all objects of this transaction are invalid, and the next points are whole.
  void Rollback();

  // The number of the process in the database. A process image keeps its number when a later writer adds it again.
  absl::StatusOr<int64_t> AddProcess(const ProcessFacts& facts);
  // `how`: "exit 0", "signal 9", "OOM kill"; "": unknown.
  absl::Status EndProcess(int64_t process, absl::Time time, absl::string_view how);
  // Ends the processes that ran when the last writer ended, except those in `running`.
  absl::Status EndOthers(absl::Span<const int64_t> running, absl::Time time);

  // Ids of files and frames are not reused while this object lives.
  absl::StatusOr<int64_t> AddFile(const CodeFile& file);
  // Frames innermost first. Returns the number of the path in the process, from 1. `new_frames` gets each frame whose
  // names have not been looked up, once.
  struct NewFrame {
    int64_t frame = 0;
    FileOffset place = {};
  };
  absl::StatusOr<uint64_t> AddPath(int64_t process, absl::Span<const FileOffset> frames,
                                   std::vector<NewFrame>& new_frames);

  // Like the function AddMark below.
  absl::Status AddMark(absl::Time time, std::optional<int64_t> process, absl::string_view kind, absl::string_view text);

  // A point belongs to a level if its time is the first one in a step of the level. So a short-lived process has few
  // points in the coarse levels, or none.
  absl::Status AddPoint(int64_t process, absl::Time time, const Point& point);

  Database& database() { return *database_; }

 private:
  // The last point of a process in a level.
  struct Last {
    int64_t time = 0;
    Rows rows = {};
  };

  Writer(std::unique_ptr<Database> database, std::string path, uint64_t most_bytes);
  absl::Status AddToLevel(size_t level, int64_t process, int64_t time, const Point& point);
  absl::StatusOr<int64_t> FrameNumber(const FileOffset& place, std::vector<NewFrame>& new_frames);

  std::unique_ptr<Database> database_;
  const std::string path_;
  const uint64_t most_bytes_;
  std::array<std::map<int64_t, Last>, kLevels> last_;  // by process
  std::array<int64_t, kLevels> begun_ = {};            // by level: the time in its latest step
  // By process. Rollback empties the map.
  std::map<int64_t, uint64_t> path_counts_;
  absl::flat_hash_set<int64_t> asked_;  // frames that were new
  // The ids that were given last. Names come later, by id, so the id of a file or frame that was pruned must not be
  // given to another one.
  int64_t last_file_ = 0;
  int64_t last_frame_ = 0;
  Statement add_tick_;
  Statement add_point_;
  Statement find_path_;
  Statement find_number_;
  Statement find_frame_;
};

// Names come later than points, from another thread. Not thread-safe.
class NameWriter {
 public:
  static absl::StatusOr<std::unique_ptr<NameWriter>> Open(const std::string& path);

  struct FrameNames {
    int64_t frame = 0;
    std::vector<profile::SourceFrame> names = {};  // innermost first; none: the frame has no names
  };
  // Writes the names of the frames of one file, all or none.
  absl::Status Write(int64_t file, absl::string_view build_id, absl::Span<const FrameNames> frames);

 private:
  explicit NameWriter(std::unique_ptr<Database> database) : database_(std::move(database)) {}
  absl::Status WriteAll(int64_t file, absl::string_view build_id, absl::Span<const FrameNames> frames);
  std::unique_ptr<Database> database_;
};

// The most marks of one process. The user of the process can ask for any number of marks, and dumps are marks, too.
inline constexpr int64_t kMaxMarks = 1000;

// FailedPrecondition: the process has kMaxMarks. Adds a mark by a connection of its own. Without a process, the mark is
// for all processes.
absl::Status AddMark(const std::string& path, absl::Time time, std::optional<int64_t> process, absl::string_view kind,
                     absl::string_view text);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_WRITER_H_
