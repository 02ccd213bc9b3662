// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/point_reader.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/history/levels.h"

namespace heaptap::history {
namespace {

// For up to this many processes, each point is looked up. For more, all points in the range of time are read.
constexpr size_t kFewProcesses = 8;

constexpr char kPointColumns[] =
    " p.time, p.process, p.live_bytes, p.live_objects, p.rss_bytes, p.limit_bytes, p.allocated_bytes, p.lg_sample, "
    "p.lost, p.whole, p.rows ";

// A process has points from its start to its end only. The clock may have been set back a little meanwhile.
constexpr absl::Duration kMargin = absl::Minutes(1);
int64_t FirstTime(const KnownProcess& process) { return absl::ToUnixMillis(process.started - kMargin); }
int64_t LastTime(const KnownProcess& process) {
  return process.ended.has_value() ? absl::ToUnixMillis(*process.ended + kMargin) : INT64_MAX;
}

}  // namespace

PointReader::PointReader(Database& database, const std::vector<KnownProcess>& processes)
    : database_(database), processes_(processes) {
  for (const KnownProcess& process : processes_) pids_[process.id] = process.pid;
}

absl::StatusOr<std::vector<int64_t>> PointReader::Times(size_t level, int64_t since, int64_t until) {
  std::vector<int64_t> times;
  Statement find = database_.Prepare("SELECT time FROM ticks WHERE level = ? AND time >= ? AND time < ?");
  find.Bind(static_cast<int64_t>(level)).Bind(since).Bind(until);
  while (find.Step()) times.push_back(find.Integer(0));
  if (!find.status().ok()) return find.status();
  return times;
}

absl::StatusOr<std::optional<int64_t>> PointReader::First(size_t level) {
  std::optional<int64_t> first;
  for (const KnownProcess& process : processes_) {
    Statement find = database_.Prepare(
        "SELECT t.time FROM ticks t CROSS JOIN points p ON p.level = t.level AND p.time = t.time "
        "WHERE t.level = ? AND t.time BETWEEN ? AND ? AND p.process = ? LIMIT 1");
    find.Bind(static_cast<int64_t>(level)).Bind(FirstTime(process)).Bind(LastTime(process)).Bind(process.id);
    if (find.Step()) first = std::min(first.value_or(INT64_MAX), find.Integer(0));
    if (!find.status().ok()) return find.status();
  }
  return first;
}

absl::Status PointReader::Read(size_t level, int64_t since, int64_t until, const std::set<int64_t>& wanted,
                               const Visit& visit) {
  // Reading begins where the first chain begins.
  const int64_t begin = since <= 0 ? 0 : WindowBegin(level, since);
  if (processes_.size() > kFewProcesses) {
    Statement all = database_.Prepare(
        absl::StrCat("SELECT", kPointColumns, "FROM points p WHERE level = ? AND time >= ? AND time < ?").c_str());
    all.Bind(static_cast<int64_t>(level)).Bind(begin).Bind(until);
    return Decode(all, since, wanted, visit);
  }
  for (const KnownProcess& process : processes_) {
    Statement own = database_.Prepare(
        absl::StrCat("SELECT", kPointColumns,
                     "FROM ticks t CROSS JOIN points p ON p.level = t.level AND p.time = t.time "
                     "WHERE t.level = ? AND t.time >= ? AND t.time < ? AND t.time <= ? AND p.process = ?")
            .c_str());
    own.Bind(static_cast<int64_t>(level)).Bind(std::max(begin, FirstTime(process))).Bind(until);
    own.Bind(LastTime(process)).Bind(process.id);
    if (absl::Status status = Decode(own, since, wanted, visit); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status PointReader::Decode(Statement& points, int64_t since, const std::set<int64_t>& wanted,
                                 const Visit& visit) {
  absl::flat_hash_map<int64_t, Rows> rows;
  while (points.Step()) {
    const int64_t time = points.Integer(0);
    const int64_t process = points.Integer(1);
    const auto pid = pids_.find(process);
    if (pid == pids_.end()) continue;
    const int64_t form = points.Integer(9);
    // The beginning of the point's chain was removed.
    if ((form & kWholePoint) == 0 && !rows.contains(process)) continue;
    Rows& own = rows[process];
    if (absl::Status status = Apply(form, points.Text(10), own); !status.ok()) {
      return absl::DataLossError(status.message());
    }
    if (time < since || !wanted.contains(time)) continue;
    const TimelinePoint totals = {.pid = pid->second,
                                  .live_bytes = static_cast<uint64_t>(points.Integer(2)),
                                  .live_objects = static_cast<uint64_t>(points.Integer(3)),
                                  .rss_bytes = points.OptionalInteger(4),
                                  .limit_bytes = points.OptionalInteger(5),
                                  .allocated_bytes = static_cast<uint64_t>(points.Integer(6)),
                                  .lg_sample = static_cast<uint32_t>(points.Integer(7)),
                                  .lost = static_cast<uint64_t>(points.Integer(8))};
    visit(time, process, totals, own);
  }
  return points.status();
}

}  // namespace heaptap::history
