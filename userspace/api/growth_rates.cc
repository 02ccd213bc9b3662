// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/growth_rates.h"

#include <sys/types.h>

#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "userspace/base/clock.h"
#include "userspace/history/database.h"
#include "userspace/history/point_reader.h"
#include "userspace/history/point_rows.h"
#include "userspace/history/timeline_data.h"
#include "userspace/report/changes.h"
#include "userspace/report/measure.h"

namespace heaptap::api {
namespace {

using history::Held;
using history::KnownProcess;
using history::Rows;
using history::TimelinePoint;

// The level with a point for each survey.
constexpr size_t kFinest = 0;
// A client that waits longer gets no rates.
constexpr absl::Duration kPatience = absl::Seconds(2);

struct Point {
  int64_t time = 0;
  TimelinePoint totals = {};
  Rows rows = {};
};

struct Ends {
  Point first;
  Point last;
};

absl::StatusOr<std::vector<KnownProcess>> RunningProcesses(history::Database& database) {
  std::vector<KnownProcess> processes;
  history::Statement find =
      database.Prepare("SELECT id, pid, process_id, started FROM processes WHERE ended IS NULL ORDER BY started");
  while (find.Step()) {
    processes.push_back({.id = find.Integer(0),
                         .pid = static_cast<pid_t>(find.Integer(1)),
                         .process_id = static_cast<uint64_t>(find.Integer(2)),
                         .started = absl::FromUnixMillis(find.Integer(3))});
  }
  if (!find.status().ok()) return find.status();
  return processes;
}

// The first and the last point of each process since `since`, by the number of the process in the database.
absl::StatusOr<absl::flat_hash_map<int64_t, Ends>> ReadEnds(history::Database& database,
                                                            const std::vector<KnownProcess>& processes, int64_t since) {
  absl::flat_hash_map<int64_t, Ends> ends;
  std::set<int64_t> wanted;
  history::Statement find = database.Prepare(
      "SELECT process, min(time), max(time) FROM points WHERE level = ? AND time >= ? GROUP BY process");
  find.Bind(int64_t{kFinest}).Bind(since);
  while (find.Step()) {
    const int64_t first = find.Integer(1);
    const int64_t last = find.Integer(2);
    if (last - first < absl::ToInt64Milliseconds(GrowthRate::kLeastPeriod)) continue;
    ends[find.Integer(0)] = {.first = {.time = first}, .last = {.time = last}};
    wanted.insert({first, last});
  }
  if (!find.status().ok()) return find.status();
  if (wanted.empty()) return ends;
  const auto take = [&](int64_t time, int64_t process, const TimelinePoint& totals, const Rows& rows) {
    const auto own = ends.find(process);
    if (own == ends.end()) return;
    for (Point* point : {&own->second.first, &own->second.last}) {
      if (point->time == time) *point = {time, totals, rows};
    }
  };
  history::PointReader reader(database, processes);
  if (absl::Status status = reader.Read(kFinest, since, *wanted.rbegin() + 1, wanted, take); !status.ok())
    return status;
  return ends;
}

report::Measure ToMeasure(const Held& held) {
  const auto deviation = static_cast<double>(held.deviation);
  return {.bytes = static_cast<double>(held.live_bytes),
          .objects = static_cast<double>(held.live_objects),
          .samples = held.samples,
          .variance = deviation * deviation};
}

double VarianceOf(const Ends& ends) {
  const auto& [first, last] = ends;
  const Held nothing;
  const auto of = [&](const Rows& rows, uint64_t path) -> const Held& {
    const auto found = rows.find(path);
    return found == rows.end() ? nothing : found->second;
  };
  std::set<uint64_t> paths;
  for (const Rows* rows : {&first.rows, &last.rows}) {
    for (const auto& [path, held] : *rows) paths.insert(path);
  }
  double variance = 0;
  for (const uint64_t path : paths) {
    const Held& before = of(first.rows, path);
    const Held& after = of(last.rows, path);
    variance += report::LiveChange(ToMeasure(after), ToMeasure(before), {.samples = after.allocated_samples},
                                   {.samples = before.allocated_samples}, true)
                    .variance;
  }
  return variance;
}

}  // namespace

absl::StatusOr<GrowthRates> ReadGrowthRates(const std::string& file, absl::Time now) {
  const absl::StatusOr<std::unique_ptr<history::Database>> database = history::Database::Open(file);
  if (!database.ok()) return database.status();
  (*database)->SetDeadline(base::Now() + kPatience);
  // All statements see the same state.
  if (absl::Status status = (*database)->Execute("BEGIN"); !status.ok()) return status;
  const absl::StatusOr<std::vector<KnownProcess>> processes = RunningProcesses(**database);
  if (!processes.ok()) return processes.status();
  const int64_t since = absl::ToUnixMillis(now - GrowthRate::kPeriod);
  const absl::StatusOr<absl::flat_hash_map<int64_t, Ends>> ends = ReadEnds(**database, *processes, since);
  if (!ends.ok()) return ends.status();
  GrowthRates rates;
  for (const KnownProcess& process : *processes) {
    const auto own = ends->find(process.id);
    if (own == ends->end()) continue;
    const auto& [first, last] = own->second;
    const absl::Duration period = absl::Milliseconds(last.time - first.time);
    const double minutes = absl::FDivDuration(period, absl::Minutes(1));
    const double bytes = static_cast<double>(last.totals.live_bytes) - static_cast<double>(first.totals.live_bytes);
    rates[process.process_id] = {
        .bytes_per_minute = bytes / minutes, .error = std::sqrt(VarianceOf(own->second)) / minutes, .period = period};
  }
  return rates;
}

}  // namespace heaptap::api
