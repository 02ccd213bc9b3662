// SPDX-License-Identifier: Apache-2.0
//
// The history of processes, and marks in it.
//
//   GET history.json                    the services that have a history
//   GET history.json?name=N | pid=P     what they held over time: &since= &until= &points= &paths=
//   GET history.json?...&at=T           what they held at one moment
//   GET history/profile.json?...&at=T   the same for the page; with &from=T the difference to an earlier moment
//   POST mark?text=T[&pid=P]            a mark in the history of a process, or of all
//
// Times are seconds since 1970 in UTC; 0 or less: that many seconds from now.
#include <sys/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/api/endpoint.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/history/moment_profile.h"
#include "userspace/history/timeline.h"
#include "userspace/history/writer.h"
#include "userspace/json/json.h"
#include "userspace/profile/difference.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/changes.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/readable.h"
#include "userspace/report/summary_text.h"
#include "userspace/views/page_data.h"

namespace heaptap::api {
namespace {

using json::Json;

// With 200 paths each, about 10 MB of JSON.
constexpr uint32_t kMostPoints = 2000;
constexpr uint32_t kMostPaths = 1000;
constexpr size_t kMostMarkBytes = 200;
// The end of the year 9999, the last year that texts of times can show.
constexpr double kLastSecond = 253402300799;

absl::Status NoHistory() { return absl::NotFoundError("the daemon keeps no history (--history none)"); }

// Whole milliseconds, which the shortest text of the number shows.
double Seconds(absl::Time time) { return static_cast<double>(absl::ToUnixMillis(time)) / 1000; }

// Reads the history at the cost of the client. If the history is not sound, has the writer check it.
template <typename Read>
auto Asked(Call& call, Read read) -> decltype(read()) {
  if (absl::Status status = call.asker.Pay(); !status.ok()) return status;
  auto answer = read();
  if (absl::IsDataLoss(answer.status())) call.history->Suspect();
  return answer;
}

absl::Status ToClient(const absl::Status& status) {
  if (absl::IsDataLoss(status)) return absl::UnavailableError("the history is corrupt; a new one begins soon");
  if (http::SecondsToWait(status).has_value()) return status;
  return {status.code(), base::Printable(status.message())};
}

history::Sees SeesOf(const Call& call) {
  return [&access = call.access](std::optional<uid_t> owner) { return access.Sees(owner); };
}

Reply Services(Call& call) {
  const absl::StatusOr<std::vector<history::Service>> services =
      Asked(call, [&] { return history::ReadServices(call.history->path(), SeesOf(call)); });
  if (!services.ok()) return ToClient(services.status());
  Json list = Json::List();
  for (const history::Service& service : *services) {
    list.Add(Json{{"name", base::Printable(service.name)},
                  {"first", Seconds(service.first)},
                  {"last", Seconds(service.last)},
                  {"processes", service.processes},
                  {"running", service.running}});
  }
  return FieldsAnswer({{"services", std::move(list)}});
}

// `short` and `folded`: what the views of a profile show of the frame (views/page_data.cc), so that the page finds the
// same path there.
Json FrameJson(const history::TimelineFrame& frame) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(base::Printable(value)); };
  const std::string name = base::Printable(
      frame.source.function.empty() ? profile::PlaceText(frame.library, frame.offset) : frame.source.function);
  const bool is_folded = report::IsPlumbing(name, frame.source.file, frame.is_inlined) || report::IsStart(name);
  return Json{{"function", text(frame.source.function)},
              {"short", report::ReadableName(name)},
              {"folded", is_folded},
              {"file", text(frame.source.file)},
              {"line", frame.source.line == 0 ? Json() : Json(frame.source.line)},
              {"library", text(frame.library)},
              {"offset", frame.offset},
              {"inline", frame.is_inlined}};
}

template <typename Integer>
Json OptionalJson(const std::optional<Integer>& value) {
  return value.has_value() ? Json(*value) : Json();
}

// An open end of the range is null.
Json TimelineJson(const history::Timeline& timeline, const history::Range& range) {
  Json processes = Json::List();
  for (const history::KnownProcess& process : timeline.processes) {
    processes.Add(Json{{"pid", process.pid},
                       {"command", base::Printable(process.command)},
                       {"service", base::Printable(process.service)},
                       {"started", Seconds(process.started)},
                       {"ended", process.ended.has_value() ? Json(Seconds(*process.ended)) : Json()},
                       {"how", base::Printable(process.how)}});
  }
  Json points = Json::List();
  Json rows = Json::List();
  for (size_t i = 0; i < timeline.points.size(); i++) {
    const history::TimelinePoint& point = timeline.points[i];
    points.Add(Json{{"time", Seconds(point.time)},
                    {"processes", point.processes},
                    {"pid", point.pid},
                    {"live_bytes", point.live_bytes},
                    {"live_objects", point.live_objects},
                    {"rss_bytes", OptionalJson(point.rss_bytes)},
                    {"limit_bytes", OptionalJson(point.limit_bytes)},
                    {"allocated_bytes", point.allocated_bytes},
                    {"lg_sample", point.lg_sample},
                    {"lost", point.lost}});
    for (const auto& [path, held] : point.rows) {
      Json cells = Json::List();
      cells.Add(i);
      cells.Add(path);
      cells.Add(held.live_bytes);
      cells.Add(held.live_objects);
      cells.Add(held.samples);
      cells.Add(held.allocated_samples);
      cells.Add(held.deviation);
      rows.Add(std::move(cells));
    }
  }
  Json paths = Json::List();
  for (const history::TimelinePath& path : timeline.paths) {
    Json frames = Json::List();
    for (const history::TimelineFrame& frame : path.frames) frames.Add(FrameJson(frame));
    paths.Add(Json{{"id", path.id}, {"frames", std::move(frames)}});
  }
  Json marks = Json::List();
  for (const history::Mark& mark : timeline.marks) {
    marks.Add(Json{{"time", Seconds(mark.time)},
                   {"pid", OptionalJson(mark.pid)},
                   {"kind", base::Printable(mark.kind)},
                   {"text", base::Printable(mark.text)}});
  }
  return Json{{"name", base::Printable(timeline.name)},
              {"since", range.since == absl::InfinitePast() ? Json() : Json(Seconds(range.since))},
              {"until", range.until == absl::InfiniteFuture() ? Json() : Json(Seconds(range.until))},
              {"processes", std::move(processes)},
              {"points", std::move(points)},
              {"paths", std::move(paths)},
              {"rows", std::move(rows)},
              {"marks", std::move(marks)}};
}

absl::StatusOr<absl::Time> Moment(const http::Request& request, const std::string& name, absl::Time if_absent) {
  const std::optional<std::string> text = request.Parameter(name);
  if (!text.has_value()) return if_absent;
  double seconds = 0;
  // Also refuses NaN.
  if (!absl::SimpleAtod(*text, &seconds) || !(seconds >= -kLastSecond && seconds <= kLastSecond)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the parameter ", name, " must be a time in seconds since 1970, or 0 or less, in seconds from now"));
  }
  // Times of points are whole milliseconds, but binary fractions of a second are not.
  return seconds > 0 ? absl::FromUnixMillis(std::llround(1000 * seconds)) : base::WallNow() + absl::Seconds(seconds);
}

absl::StatusOr<uint32_t> Number(const http::Request& request, const std::string& name, size_t if_absent, uint32_t least,
                                uint32_t most) {
  const std::optional<std::string> text = request.Parameter(name);
  if (!text.has_value()) return static_cast<uint32_t>(if_absent);
  const std::optional<uint32_t> number = ParseNumber(*text, least, most);
  if (number.has_value()) return *number;
  return absl::InvalidArgumentError(
      absl::StrCat("the parameter ", name, " must be a number from ", least, " to ", most));
}

absl::StatusOr<history::Range> AskedRange(const http::Request& request) {
  history::Range range;
  const absl::StatusOr<absl::Time> since = Moment(request, "since", range.since);
  if (!since.ok()) return since.status();
  const absl::StatusOr<absl::Time> until = Moment(request, "until", range.until);
  if (!until.ok()) return until.status();
  const absl::StatusOr<uint32_t> points = Number(request, "points", range.points, 2, kMostPoints);
  if (!points.ok()) return points.status();
  const absl::StatusOr<uint32_t> paths = Number(request, "paths", range.paths, 0, kMostPaths);
  if (!paths.ok()) return paths.status();
  return history::Range{.since = *since, .until = *until, .points = *points, .paths = *paths};
}

absl::StatusOr<history::Subject> AskedSubject(const http::Request& request) {
  history::Subject subject = {.name = request.Parameter("name")};
  if (!request.Parameter("pid").has_value()) return subject;
  const absl::StatusOr<uint32_t> pid = Number(request, "pid", 0, 1, kMaxPid);
  if (!pid.ok()) return absl::InvalidArgumentError("the parameter pid must be a PID");
  subject.pid = static_cast<pid_t>(*pid);
  return subject;
}

Reply History(Call& call) {
  if (call.history == nullptr) return NoHistory();
  const absl::StatusOr<history::Subject> asked = AskedSubject(call.request);
  if (!asked.ok()) return asked.status();
  const history::Subject& subject = *asked;
  if (!subject.name.has_value() && !subject.pid.has_value()) return Services(call);
  absl::StatusOr<history::Timeline> timeline = absl::UnknownError("");
  history::Range range;
  if (call.request.Parameter("at").has_value()) {
    const absl::StatusOr<absl::Time> at = Moment(call.request, "at", base::WallNow());
    if (!at.ok()) return at.status();
    timeline = Asked(call, [&] { return history::ReadMoment(call.history->path(), subject, *at, SeesOf(call)); });
  } else {
    const absl::StatusOr<history::Range> asked_range = AskedRange(call.request);
    if (!asked_range.ok()) return asked_range.status();
    range = *asked_range;
    timeline = Asked(call, [&] { return history::ReadTimeline(call.history->path(), subject, range, SeesOf(call)); });
    range.until = std::min(range.until, base::WallNow());
  }
  if (!timeline.ok()) return ToClient(timeline.status());
  return FieldsAnswer(TimelineJson(*timeline, range));
}

// What one process allocated between the two moments; its sum only grows. None: the timelines are of several processes,
// some of which may have ended meanwhile.
std::optional<double> AllocatedBetween(const history::Timeline& then, const history::Timeline& now) {
  const history::TimelinePoint& before = then.points[0];
  const history::TimelinePoint& after = now.points[0];
  const bool is_one = before.processes == 1 && after.processes == 1 && before.pid == after.pid;
  if (!is_one || after.allocated_bytes < before.allocated_bytes) return std::nullopt;
  return static_cast<double>(after.allocated_bytes - before.allocated_bytes);
}

Reply MomentPage(Call& call) {
  if (call.history == nullptr) return NoHistory();
  const absl::StatusOr<history::Subject> subject = AskedSubject(call.request);
  if (!subject.ok()) return subject.status();
  if (!subject->name.has_value() && !subject->pid.has_value()) {
    return absl::InvalidArgumentError("one of the parameters name and pid is needed");
  }
  const absl::StatusOr<absl::Time> at = Moment(call.request, "at", base::WallNow());
  if (!at.ok()) return at.status();
  const absl::StatusOr<history::Timeline> now =
      Asked(call, [&] { return history::ReadMoment(call.history->path(), *subject, *at, SeesOf(call)); });
  if (!now.ok()) return ToClient(now.status());
  history::MomentProfiles profiles;
  history::MomentProfile shown = profiles.Make(*now);
  report::Subject page = {
      .name = absl::StrCat(base::Printable(now->name), " at ", history::TimeText(now->points[0].time)),
      .period = shown.profile.period,
      .has_allocated = shown.profile.has_allocated};
  std::vector<report::Measures> measures;
  // A difference is not a part of the resident memory.
  if (!call.request.Parameter("from").has_value()) page.resident_bytes = now->points[0].rss_bytes;
  if (call.request.Parameter("from").has_value()) {
    const absl::StatusOr<absl::Time> from = Moment(call.request, "from", base::WallNow());
    if (!from.ok()) return from.status();
    const absl::StatusOr<history::Timeline> then =
        Asked(call, [&] { return history::ReadMoment(call.history->path(), *subject, *from, SeesOf(call)); });
    if (!then.ok()) return ToClient(then.status());
    history::MomentProfile before = profiles.Make(*then);
    profile::Profile difference = profile::Difference(shown.profile, before.profile, profile::Unchanged::kKeep);
    measures = report::ChangesOf(difference, shown.profile, before.profile);
    absl::StrAppend(&page.name, " since ", history::TimeText(then->points[0].time));
    page.is_difference = true;
    page.allocated_bytes = AllocatedBetween(*then, *now);
    page.before = before.profile.Live();
    page.after = shown.profile.Live();
    shown.profile = std::move(difference);
    shown.symbols.merge(before.symbols);
  }
  page.several_periods = shown.profile.several_periods;
  const profile::FindSourceFrames find = [&shown](uint64_t address) {
    const auto found = shown.symbols.find(address);
    return found == shown.symbols.end() ? std::vector<profile::SourceFrame>() : found->second;
  };
  const report::NamedProfile named(shown.profile, find, measures);
  return http::Response{
      .content_type = http::kJson,
      .body = report::PageData(named, named.paths(), page, {.pid = now->points[0].pid, .time = now->points[0].time})};
}

// The number in the history of the process that the client means.
absl::StatusOr<int64_t> MarkedProcess(Call& call, pid_t pid) {
  const absl::StatusOr<profile::NamedProcess> process = VisibleProcess(call, pid);
  if (!process.ok()) return process.status();
  return Asked(call, [&] { return history::FindProcess(call.history->path(), pid, process->process_id); });
}

Reply Mark(Call& call) {
  if (call.history == nullptr) return NoHistory();
  const std::string text = base::Printable(call.request.Parameter("text").value_or(""));
  if (text.empty() || text.size() > kMostMarkBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the text of a mark must have 1 to ", kMostMarkBytes, " bytes"));
  }
  std::optional<int64_t> process;
  if (call.request.Parameter("pid").has_value()) {
    const absl::StatusOr<uint32_t> pid = Number(call.request, "pid", 0, 1, kMaxPid);
    if (!pid.ok()) return absl::InvalidArgumentError("the parameter pid must be a PID");
    const absl::StatusOr<int64_t> found = MarkedProcess(call, static_cast<pid_t>(*pid));
    if (!found.ok()) return ToClient(found.status());
    process = *found;
  } else if (!call.access.SeesAll()) {
    return absl::PermissionDeniedError("a mark for all processes needs full access; name one of your processes");
  }
  absl::Status status = history::AddMark(call.history->path(), base::WallNow(), process, "mark", text);
  if (absl::IsNotFound(status)) return absl::NotFoundError("there is no history yet");
  if (!status.ok()) return ToClient(status);
  return FieldsAnswer({{"marked", true}});
}

constexpr CollectorEndpoint kHistory[] = {
    {"history.json", kRead, ErrorForm::kJson, History},
    {"history/profile.json", kRead, ErrorForm::kJson, MomentPage},
    {"mark", kPost, ErrorForm::kJson, Mark},
};

}  // namespace

absl::Span<const CollectorEndpoint> HistoryEndpoints() { return kHistory; }

}  // namespace heaptap::api
