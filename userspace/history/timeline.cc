// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/timeline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/history/database.h"
#include "userspace/history/levels.h"
#include "userspace/history/path_names.h"
#include "userspace/history/point_reader.h"
#include "userspace/history/point_rows.h"

namespace heaptap::history {
namespace {

// A client that waits longer has asked for too much.
constexpr absl::Duration kPatience = absl::Seconds(8);

// A process without a point for this many steps does not run.
constexpr int kStepsToMiss = 3;

absl::StatusOr<std::unique_ptr<Database>> OpenForReading(const std::string& file) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(file);
  if (absl::IsNotFound(database.status())) return absl::NotFoundError("there is no history yet");
  if (!database.ok()) return database;
  (*database)->SetDeadline(base::Now() + kPatience);
  // All statements see the same state.
  if (absl::Status status = (*database)->Execute("BEGIN"); !status.ok()) return status;
  return database;
}

bool IsSeen(const Sees& sees, std::optional<int64_t> owner) {
  return sees(owner.has_value() ? std::optional<uid_t>(static_cast<uid_t>(*owner)) : std::nullopt);
}

int64_t Milliseconds(absl::Time time) {
  if (time == absl::InfinitePast()) return 0;
  if (time == absl::InfiniteFuture()) return INT64_MAX;
  return absl::ToUnixMillis(time);
}

std::string SubjectText(const Subject& subject) {
  return subject.pid.has_value() ? absl::StrCat("process ", *subject.pid) : subject.name.value_or("");
}

// How the last of the processes ended, if all had ended by that time; else "".
std::string EndText(const Timeline& timeline, const Subject& subject, absl::Time time) {
  const KnownProcess* last = nullptr;
  for (const KnownProcess& process : timeline.processes) {
    if (!process.ended.has_value() || *process.ended > time) return "";
    if (last == nullptr || *process.ended > *last->ended) last = &process;
  }
  if (last == nullptr) return "";
  const std::string how = last->how.empty() ? "" : absl::StrCat(" (", last->how, ")");
  const std::string name = subject.pid.has_value() ? absl::StrCat(*subject.pid) : subject.name.value_or("");
  return absl::StrCat(": it ended at ", TimeText(*last->ended), how, "; its last moment is ", name, "@last");
}

// Finds the processes that meet the condition, which has the parameter ?1.
template <typename Value>
absl::Status Find(Database& database, const char* condition, Value value, const Sees& sees, Timeline& timeline) {
  Statement find = database.Prepare(
      absl::StrCat("SELECT id, service, command, pid, process_id, started, ended, how, owner FROM processes WHERE ",
                   condition)
          .c_str());
  find.Bind(value);
  while (find.Step()) {
    if (!IsSeen(sees, find.OptionalInteger(8))) continue;
    KnownProcess process = {.id = find.Integer(0),
                            .service = find.Text(1),
                            .command = find.Text(2),
                            .pid = static_cast<pid_t>(find.Integer(3)),
                            .process_id = static_cast<uint64_t>(find.Integer(4)),
                            .started = absl::FromUnixMillis(find.Integer(5)),
                            .how = find.Text(7)};
    if (find.OptionalInteger(6).has_value()) process.ended = absl::FromUnixMillis(find.Integer(6));
    timeline.processes.push_back(std::move(process));
  }
  return find.status();
}

absl::StatusOr<Timeline> FindProcesses(Database& database, const Subject& subject, const Sees& sees) {
  Timeline timeline;
  absl::Status status;
  if (subject.pid.has_value()) {
    status = Find(database, "pid = ?1 ORDER BY started DESC", int64_t{*subject.pid}, sees, timeline);
    if (timeline.processes.size() > 1) timeline.processes.resize(1);
  } else {
    const absl::string_view name = *subject.name;
    status = Find(database, "service = ?1 ORDER BY started", name, sees, timeline);
    if (status.ok() && timeline.processes.empty()) {
      status = Find(database, "command = ?1 ORDER BY started", name, sees, timeline);
    }
  }
  if (!status.ok()) return status;
  if (timeline.processes.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no history of ", SubjectText(subject), "; heaptap history lists what there is"));
  }
  const KnownProcess& latest = timeline.processes.back();
  timeline.name = subject.pid.has_value() ? absl::StrCat(latest.command, " (PID ", latest.pid, ")") : *subject.name;
  return timeline;
}

// A part of the range of time, and the level that covers it.
struct Piece {
  size_t level;
  int64_t since;
  int64_t until;
};

// The finest level for each part of the time.
absl::StatusOr<std::vector<Piece>> Pieces(PointReader& reader, int64_t since, int64_t until) {
  std::vector<Piece> pieces;
  for (size_t level = 0; level < kLevels; level++) {
    const absl::StatusOr<std::optional<int64_t>> first = reader.First(level);
    if (!first.ok()) return first.status();
    const int64_t begin = std::max(since, first->value_or(INT64_MAX));
    if (begin < until) pieces.push_back({level, begin, until});
    until = std::min(until, begin);
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// `most` of the elements, evenly spread, including the first and the last.
template <typename T>
std::vector<T> Thinned(const std::vector<T>& all, size_t most) {
  if (all.size() <= most || most < 2) return all;
  std::vector<T> kept;
  kept.reserve(most);
  for (size_t i = 0; i < most; i++) kept.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return kept;
}

// Adds what one process held.
void Add(const TimelinePoint& totals, const Rows& rows, const PathNumbers& paths, TimelinePoint& point) {
  point.processes++;
  point.pid = totals.pid;
  point.live_bytes += totals.live_bytes;
  point.live_objects += totals.live_objects;
  if (totals.rss_bytes.has_value()) point.rss_bytes = point.rss_bytes.value_or(0) + *totals.rss_bytes;
  if (totals.limit_bytes.has_value()) {
    point.limit_bytes = std::max(point.limit_bytes.value_or(0), *totals.limit_bytes);
  }
  point.allocated_bytes += totals.allocated_bytes;
  point.lg_sample = std::max(point.lg_sample, totals.lg_sample);
  point.lost += totals.lost;
  for (const auto& [number, held] : rows) {
    const auto found = paths.find(number);
    point.rows[found == paths.end() ? 0 : found->second] += held;
  }
}

// Keeps the rows of the `most` paths that held most at any time; the other rows become path 0.
void KeepLargest(std::vector<TimelinePoint>& points, size_t most) {
  absl::flat_hash_map<int64_t, uint64_t> largest;
  for (const TimelinePoint& point : points) {
    for (const auto& [path, held] : point.rows) {
      uint64_t& bytes = largest[path];
      bytes = std::max(bytes, held.live_bytes);
    }
  }
  largest.erase(0);
  if (largest.size() <= most) return;
  std::vector<std::pair<uint64_t, int64_t>> order;
  order.reserve(largest.size());
  for (const auto& [path, bytes] : largest) order.emplace_back(bytes, path);
  std::sort(order.begin(), order.end(), std::greater<>());
  for (size_t i = most; i < order.size(); i++) {
    const int64_t path = order[i].second;
    for (TimelinePoint& point : points) {
      const auto row = point.rows.find(path);
      if (row == point.rows.end()) continue;
      point.rows[0] += row->second;
      point.rows.erase(path);
    }
  }
}

absl::Status FillPaths(Database& database, Timeline& timeline) {
  std::set<int64_t> used;
  for (const TimelinePoint& point : timeline.points) {
    for (const auto& [path, held] : point.rows) used.insert(path);
  }
  used.erase(0);
  absl::StatusOr<NamedPaths> named = ReadPaths(database, used);
  if (!named.ok()) return named.status();
  for (TimelinePoint& point : timeline.points) {
    std::map<int64_t, Held> rows;
    for (const auto& [path, held] : point.rows) {
      const auto same = named->same.find(path);
      rows[same == named->same.end() ? path : same->second] += held;
    }
    point.rows = std::move(rows);
  }
  timeline.paths = std::move(named->paths);
  return absl::OkStatus();
}

absl::Status FillMarks(Database& database, int64_t since, int64_t until, Timeline& timeline) {
  absl::flat_hash_map<int64_t, pid_t> known;
  const auto is_in = [&](absl::Time time) {
    return absl::ToUnixMillis(time) >= since && absl::ToUnixMillis(time) < until;
  };
  for (const KnownProcess& process : timeline.processes) {
    known[process.id] = process.pid;
    if (is_in(process.started)) {
      timeline.marks.push_back({process.started, process.pid, "start", process.command});
    }
    if (process.ended.has_value() && is_in(*process.ended)) {
      timeline.marks.push_back({*process.ended, process.pid, "end", process.how});
    }
  }
  Statement find = database.Prepare("SELECT time, process, kind, text FROM marks WHERE time >= ? AND time < ?");
  find.Bind(since).Bind(until);
  while (find.Step()) {
    const std::optional<int64_t> process = find.OptionalInteger(1);
    if (process.has_value() && !known.contains(*process)) continue;
    timeline.marks.push_back({absl::FromUnixMillis(find.Integer(0)),
                              process.has_value() ? std::optional<pid_t>(known[*process]) : std::nullopt, find.Text(2),
                              find.Text(3)});
  }
  std::stable_sort(timeline.marks.begin(), timeline.marks.end(),
                   [](const Mark& a, const Mark& b) { return a.time < b.time; });
  return find.status();
}

}  // namespace

std::string TimeText(absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M:%S", time, absl::LocalTimeZone()); }

absl::StatusOr<Timeline> ReadTimeline(const std::string& file, const Subject& subject, const Range& range,
                                      const Sees& sees) {
  const absl::StatusOr<std::unique_ptr<Database>> database = OpenForReading(file);
  if (!database.ok()) return database.status();
  absl::StatusOr<Timeline> timeline = FindProcesses(**database, subject, sees);
  if (!timeline.ok()) return timeline;
  PointReader reader(**database, timeline->processes);
  const int64_t since = Milliseconds(range.since);
  const int64_t until = Milliseconds(range.until);
  const absl::StatusOr<std::vector<Piece>> pieces = Pieces(reader, since, until);
  if (!pieces.ok()) return pieces.status();
  std::vector<std::pair<int64_t, size_t>> times;  // each with the number of its piece
  for (size_t i = 0; i < pieces->size(); i++) {
    const Piece& piece = (*pieces)[i];
    const absl::StatusOr<std::vector<int64_t>> all = reader.Times(piece.level, piece.since, piece.until);
    if (!all.ok()) return all.status();
    for (const int64_t time : *all) times.emplace_back(time, i);
  }
  std::map<int64_t, TimelinePoint> points;
  std::vector<std::set<int64_t>> wanted(pieces->size());
  for (const auto& [time, piece] : Thinned(times, range.points)) wanted[piece].insert(time);
  absl::StatusOr<PathsOfProcesses> paths = ReadPathNumbers(**database, timeline->processes);
  if (!paths.ok()) return paths.status();
  for (size_t i = 0; i < pieces->size(); i++) {
    const Piece& piece = (*pieces)[i];
    const auto add = [&](int64_t time, int64_t process, const TimelinePoint& totals, const Rows& rows) {
      TimelinePoint& point = points[time];
      point.time = absl::FromUnixMillis(time);
      Add(totals, rows, (*paths)[process], point);
    };
    absl::Status status = reader.Read(piece.level, piece.since, piece.until, wanted[i], add);
    if (!status.ok()) return status;
  }
  timeline->points.reserve(points.size());
  for (auto& [time, point] : points) timeline->points.push_back(std::move(point));
  KeepLargest(timeline->points, range.paths);
  if (absl::Status status = FillPaths(**database, *timeline); !status.ok()) return status;
  if (absl::Status status = FillMarks(**database, since, until, *timeline); !status.ok()) return status;
  return timeline;
}

absl::StatusOr<Timeline> ReadMoment(const std::string& file, const Subject& subject, absl::Time time,
                                    const Sees& sees) {
  const absl::StatusOr<std::unique_ptr<Database>> database = OpenForReading(file);
  if (!database.ok()) return database.status();
  absl::StatusOr<Timeline> timeline = FindProcesses(**database, subject, sees);
  if (!timeline.ok()) return timeline;
  PointReader reader(**database, timeline->processes);
  const int64_t until = absl::ToUnixMillis(time) + 1;
  absl::StatusOr<PathsOfProcesses> paths = ReadPathNumbers(**database, timeline->processes);
  if (!paths.ok()) return paths.status();
  for (size_t level = 0; level < kLevels; level++) {
    const int64_t since = until - kStepsToMiss * absl::ToInt64Milliseconds(Levels()[level].step);
    const absl::StatusOr<std::vector<int64_t>> times = reader.Times(level, since, until);
    if (!times.ok()) return times.status();
    // The last point of each process.
    std::map<int64_t, std::pair<TimelinePoint, Rows>> last;
    const auto keep = [&](int64_t at, int64_t process, const TimelinePoint& totals, const Rows& rows) {
      last[process] = {totals, rows};
      last[process].first.time = absl::FromUnixMillis(at);
    };
    absl::Status status = reader.Read(level, since, until, {times->begin(), times->end()}, keep);
    if (!status.ok()) return status;
    // Processes that had ended by then hold nothing.
    for (const KnownProcess& process : timeline->processes) {
      if (process.ended.has_value() && *process.ended < time) last.erase(process.id);
    }
    if (last.empty()) continue;
    TimelinePoint point;
    for (const auto& [process, held] : last) {
      point.time = std::max(point.time, held.first.time);
      Add(held.first, held.second, (*paths)[process], point);
    }
    timeline->points.push_back(std::move(point));
    if (absl::Status filled = FillPaths(**database, *timeline); !filled.ok()) return filled;
    return timeline;
  }
  return absl::NotFoundError(absl::StrCat("there is no history of ", SubjectText(subject), " at ", TimeText(time),
                                          EndText(*timeline, subject, time)));
}

absl::StatusOr<std::vector<Service>> ReadServices(const std::string& file, const Sees& sees) {
  const absl::StatusOr<std::unique_ptr<Database>> database = OpenForReading(file);
  if (!database.ok()) return database.status();
  Statement find = (*database)->Prepare(
      "SELECT service, owner, started, coalesce(ended, last0, last1, last2, started), ended IS NULL FROM processes");
  std::map<std::string, Service> services;
  while (find.Step()) {
    if (!IsSeen(sees, find.OptionalInteger(1))) continue;
    const absl::Time first = absl::FromUnixMillis(find.Integer(2));
    const absl::Time last = absl::FromUnixMillis(find.Integer(3));
    const std::string name = find.Text(0);
    Service& service = services.try_emplace(name, Service{.name = name, .first = first, .last = last}).first->second;
    service.first = std::min(service.first, first);
    service.last = std::max(service.last, last);
    service.processes++;
    service.running += find.Integer(4) != 0;
  }
  if (!find.status().ok()) return find.status();
  std::vector<Service> result;
  result.reserve(services.size());
  for (auto& [name, service] : services) result.push_back(std::move(service));
  return result;
}

absl::StatusOr<int64_t> FindProcess(const std::string& file, pid_t pid, uint64_t process_id) {
  const absl::StatusOr<std::unique_ptr<Database>> database = OpenForReading(file);
  if (!database.ok()) return database.status();
  Statement find =
      (*database)->Prepare("SELECT id FROM processes WHERE pid = ? AND process_id = ? ORDER BY started DESC LIMIT 1");
  if (find.Bind(int64_t{pid}).Bind(static_cast<int64_t>(process_id)).Step()) return find.Integer(0);
  if (!find.status().ok()) return find.status();
  return absl::NotFoundError(absl::StrCat("there is no history of process ", pid, " yet"));
}

}  // namespace heaptap::history
