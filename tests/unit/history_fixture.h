// SPDX-License-Identifier: Apache-2.0
//
// A history for tests: processes, call paths and points with little to say.
#ifndef HEAPTAP_TESTS_UNIT_HISTORY_FIXTURE_H_
#define HEAPTAP_TESTS_UNIT_HISTORY_FIXTURE_H_

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "userspace/history/point_rows.h"
#include "userspace/history/schema.h"
#include "userspace/history/timeline.h"
#include "userspace/history/writer.h"

namespace heaptap::history {

// The beginning of a window of each level.
inline const absl::Time kBegin = absl::FromUnixSeconds(1'790'000'400);

inline bool SeesAll(std::optional<uid_t> owner) {
  (void)owner;
  return true;
}

// A history in a folder of its own.
class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string folder = testing::TempDir() + "/history.XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ + "/history.db";
  }
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Writer> Open(uint64_t most_bytes = kDefaultBytes) {
    absl::StatusOr<std::unique_ptr<Writer>> writer = Writer::Open(path_, most_bytes);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }

  static ProcessFacts Process(pid_t pid, const std::string& service = "shop", uid_t owner = 0) {
    return {.service = service,
            .command = "server",
            .pid = pid,
            .process_id = static_cast<uint64_t>(pid) * 10,
            .owner = owner,
            .started = kBegin};
  }

  // A path through the file with these offsets, as row `number`.
  uint64_t Path(Writer& writer, int64_t process, const std::vector<uint64_t>& offsets, const CodeFile& file = {}) {
    const absl::StatusOr<int64_t> id = writer.AddFile(file.path.empty() ? CodeFile{"/bin/server", "v1"} : file);
    EXPECT_TRUE(id.ok()) << id.status();
    std::vector<FileOffset> frames;
    for (const uint64_t offset : offsets) frames.push_back({*id, offset});
    const absl::StatusOr<uint64_t> number = writer.AddPath(process, frames, new_frames_);
    EXPECT_TRUE(number.ok()) << number.status();
    return *number;
  }

  // Names the frames that no one has named yet: "f<offset>".
  void NameAll() {
    const absl::StatusOr<std::unique_ptr<NameWriter>> names = NameWriter::Open(path_);
    ASSERT_TRUE(names.ok());
    for (const Writer::NewFrame& frame : new_frames_) {
      const profile::SourceFrame name = {
          .function = absl::StrCat("f", frame.place.offset), .file = "server.c", .line = 7};
      ASSERT_TRUE((*names)->Write(frame.place.file, "abcd", {{frame.frame, {name}}}).ok());
    }
    new_frames_.clear();
  }

  static Point Holding(const Rows& rows) {
    Point point = {.rss_bytes = 1 << 20, .allocated_bytes = 100, .lg_sample = 19, .rows = rows};
    for (const auto& [number, held] : rows) {
      point.live_bytes += held.live_bytes;
      point.live_objects += held.live_objects;
    }
    return point;
  }

  absl::StatusOr<Timeline> Read(const Subject& subject, const Range& range = {}) {
    return ReadTimeline(path_, subject, range, SeesAll);
  }

  uint64_t FileBytes() const {
    uint64_t bytes = 0;
    for (const char* end : {"", "-wal"}) {
      struct stat status;
      if (stat((path_ + end).c_str(), &status) == 0) bytes += status.st_size;
    }
    return bytes;
  }

  std::string folder_;
  std::string path_;
  std::vector<Writer::NewFrame> new_frames_;
};

}  // namespace heaptap::history

#endif  // HEAPTAP_TESTS_UNIT_HISTORY_FIXTURE_H_
