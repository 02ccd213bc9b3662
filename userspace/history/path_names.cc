// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/path_names.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/history/point_rows.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::history {
namespace {

using Frames = std::vector<TimelineFrame>;

// A program chooses its names. Each of the 127 functions of a call path may have a name of 16 KiB, and so may as many
// inlined functions. The names of 1,000 ordinary call paths take some megabytes. An answer holds its names about three
// times.
constexpr uint64_t kMostNameBytes = 32 << 20;

// Frames of the database, each read once.
class FrameReader {
 public:
  explicit FrameReader(Database& database)
      : place_(database.Prepare("SELECT offset, path FROM frames LEFT JOIN files ON files.id = file "
                                "WHERE frames.id = ?")),
        names_(database.Prepare("SELECT function, file, line FROM names WHERE frame = ? ORDER BY depth")) {}

  // Innermost first; the last one is not inlined.
  absl::StatusOr<const Frames*> Read(int64_t frame) {
    const auto [found, is_new] = known_.try_emplace(frame);
    Frames& frames = found->second;
    if (!is_new) return &frames;
    if (!place_.Reset().Bind(frame).Step()) {
      if (!place_.status().ok()) return place_.status();
      return &frames;
    }
    const auto offset = static_cast<uint64_t>(place_.Integer(0));
    const std::string library = place_.Text(1);
    names_.Reset().Bind(frame);
    while (names_.Step()) {
      frames.push_back({.source = {.function = names_.Text(0),
                                   .file = names_.Text(1),
                                   .line = static_cast<uint32_t>(names_.Integer(2))},
                        .library = library,
                        .offset = offset,
                        .is_inlined = true});
    }
    if (!names_.status().ok()) return names_.status();
    if (frames.empty()) frames.push_back({.library = library, .offset = offset});
    frames.back().is_inlined = false;
    return &frames;
  }

 private:
  Statement place_;
  Statement names_;
  std::map<int64_t, Frames> known_;
};

}  // namespace

// The parts of a key can hold any byte but NUL, so NUL separates them.
std::string PathKey(absl::Span<const TimelineFrame> frames) {
  std::string key;
  for (const TimelineFrame& frame : frames) {
    absl::StrAppend(&key, profile::FileName(frame.library), absl::string_view("\0", 1), frame.source.function,
                    absl::string_view("\0", 1));
    if (frame.source.function.empty()) absl::StrAppend(&key, frame.library, frame.offset);
    key.push_back('\0');
  }
  return key;
}

absl::StatusOr<PathsOfProcesses> ReadPathNumbers(Database& database, absl::Span<const KnownProcess> processes) {
  PathsOfProcesses all;
  Statement find = database.Prepare("SELECT number, path FROM process_paths WHERE process = ?");
  for (const KnownProcess& process : processes) {
    PathNumbers& numbers = all[process.id];
    find.Reset().Bind(process.id);
    while (find.Step()) numbers[static_cast<uint64_t>(find.Integer(0))] = find.Integer(1);
    if (!find.status().ok()) return find.status();
  }
  return all;
}

absl::StatusOr<NamedPaths> ReadPaths(Database& database, const std::set<int64_t>& ids) {
  NamedPaths result;
  FrameReader reader(database);
  absl::flat_hash_map<std::string, int64_t> by_key;
  Statement find = database.Prepare("SELECT frames FROM paths WHERE id = ?");
  uint64_t bytes = 0;
  for (const int64_t id : ids) {
    if (!find.Reset().Bind(id).Step()) {
      if (!find.status().ok()) return find.status();
      continue;
    }
    const absl::StatusOr<std::vector<uint64_t>> frames = DecodeNumbers(find.Text(0));
    if (!frames.ok()) return absl::DataLossError(frames.status().message());
    TimelinePath path = {.id = id};
    for (const uint64_t frame : *frames) {
      const absl::StatusOr<const Frames*> read = reader.Read(static_cast<int64_t>(frame));
      if (!read.ok()) return read.status();
      for (const TimelineFrame& one : **read) {
        bytes += one.source.function.size() + one.source.file.size() + one.library.size();
      }
      if (bytes > kMostNameBytes) {
        return absl::OutOfRangeError(absl::StrCat("the names in these call paths take more than ", kMostNameBytes >> 20,
                                                  " MiB; ask for fewer call paths"));
      }
      path.frames.insert(path.frames.end(), (*read)->begin(), (*read)->end());
    }
    const auto [found, is_new] = by_key.try_emplace(PathKey(path.frames), id);
    result.same[id] = found->second;
    if (is_new) result.paths.push_back(std::move(path));
  }
  return result;
}

}  // namespace heaptap::history
