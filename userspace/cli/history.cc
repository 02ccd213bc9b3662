// SPDX-License-Identifier: Apache-2.0
//
// heaptap history: shows what a service, a command or a process held over time.
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/client.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/history_profile.h"
#include "userspace/cli/json_text.h"
#include "userspace/cli/moment.h"
#include "userspace/cli/terminal.h"
#include "userspace/export/json.h"
#include "userspace/report/human.h"
#include "userspace/report/readable.h"
#include "userspace/report/text.h"

namespace heaptap::cli {
namespace {

using nlohmann::json;
using report::HumanBytes;
using report::kUnknown;

constexpr size_t kShownRows = 20;  // of the table: fits on a terminal
constexpr int kPoints = 600;
constexpr size_t kGrownPaths = 5;
constexpr size_t kMarks = 20;
constexpr size_t kFrames = 6;  // of a path in a line
constexpr size_t kBarWidth = 20;

struct HistoryFlags {
  std::string socket = DefaultSocket();
  std::string subject;
  std::string since = "1d";
  std::string until = "now";
  bool json = false;
};

std::string TimeText(const json& seconds) {
  return absl::FormatTime("%m-%d %H:%M:%S", absl::UnixEpoch() + absl::Seconds(seconds.get<double>()),
                          absl::LocalTimeZone());
}

std::string Signed(double bytes) { return absl::StrCat(bytes < 0 ? "-" : "+", HumanBytes(std::abs(bytes))); }

std::string BytesOrUnknown(const json& value) { return value.is_null() ? kUnknown : HumanBytes(value.get<double>()); }

// The functions of a path, innermost first, as readable as a line allows.
std::string PathText(const json& path) {
  std::vector<std::string> names;
  for (const json& frame : path.at("frames")) {
    if (!frame.at("function").is_null()) {
      const auto function = frame.at("function").get<std::string>();
      // What only passes the allocation on, or starts the program, says nothing.
      if (report::IsPlumbing(function) || report::IsStart(function)) continue;
      names.push_back(report::ReadableName(base::Printable(function)));
    } else if (!frame.at("library").is_null()) {
      const auto library = frame.at("library").get<std::string>();
      names.push_back(absl::StrCat(base::Printable(library.substr(library.rfind('/') + 1)), "+0x",
                                   absl::Hex(frame.at("offset").get<uint64_t>())));
    }
  }
  if (names.size() > kFrames) {
    names.resize(kFrames);
    names.emplace_back("...");
  }
  return names.empty() ? "[unknown call path]" : absl::StrJoin(names, " < ");
}

// The times at which a row is printed: evenly spread, the last one among them.
std::vector<size_t> ShownPoints(size_t count) {
  std::vector<size_t> shown;
  const size_t rows = std::min(count, kShownRows);
  shown.reserve(rows);
  for (size_t i = 0; i < rows; i++) shown.push_back(rows == 1 ? count - 1 : i * (count - 1) / (rows - 1));
  return shown;
}

std::string PointsText(const json& document) {
  const json& points = document.at("points");
  report::Table table({{"TIME"}, {"PROCESSES", true}, {"LIVE", true}, {"GROWTH", true}, {"RSS", true}, {""}});
  double peak = 1;
  size_t peak_point = 0;
  for (size_t i = 0; i < points.size(); i++) {
    const auto live = points[i].at("live_bytes").get<double>();
    if (live > peak) peak_point = i;
    peak = std::max(peak, live);
  }
  double last = 0;
  for (const size_t i : ShownPoints(points.size())) {
    const json& point = points[i];
    const auto live = point.at("live_bytes").get<double>();
    const bool is_first = i == 0;
    table.Add({TimeText(point.at("time")), absl::StrCat(point.at("processes").get<int>()), HumanBytes(live),
               is_first ? kUnknown : Signed(live - last), BytesOrUnknown(point.at("rss_bytes")),
               std::string(static_cast<size_t>(kBarWidth * std::clamp(live / peak, 0.0, 1.0)), '#')});
    last = live;
  }
  return absl::StrCat(table.Text(), "peak: ", HumanBytes(peak), " at ", TimeText(points[peak_point].at("time")), "\n");
}

std::string GrownText(const json& document, size_t width) {
  const size_t count = document.at("points").size();
  absl::flat_hash_map<int64_t, double> growth;
  for (const json& row : document.at("rows")) {
    const auto point = row.at(0).get<size_t>();
    if (point == 0) growth[row.at(1).get<int64_t>()] -= row.at(2).get<double>();
    if (point + 1 == count) growth[row.at(1).get<int64_t>()] += row.at(2).get<double>();
  }
  std::vector<std::pair<double, const json*>> grown;
  for (const json& path : document.at("paths")) {
    const double bytes = growth[path.at("id").get<int64_t>()];
    if (bytes > 0) grown.emplace_back(bytes, &path);
  }
  std::sort(grown.begin(), grown.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (grown.size() > kGrownPaths) grown.resize(kGrownPaths);
  std::string text = grown.empty() ? "" : "\nwhat grew most, from the first to the last of these times:\n";
  for (const auto& [bytes, path] : grown) {
    const std::string line = absl::StrCat("  ", Signed(bytes), "  ", PathText(*path));
    absl::StrAppend(&text, width == 0 ? line : report::Fit(line, width), "\n");
  }
  return text;
}

std::string MarksText(const json& document) {
  const json& marks = document.at("marks");
  std::string text = marks.empty() ? "" : "\nwhat happened:\n";
  const size_t first = marks.size() > kMarks ? marks.size() - kMarks : 0;
  if (first > 0) absl::StrAppend(&text, "  ... ", first, " earlier ones: see --json\n");
  for (size_t i = first; i < marks.size(); i++) {
    const json& mark = marks[i];
    const std::string process = mark.at("pid").is_null() ? "" : absl::StrCat(" of ", mark.at("pid").get<int>());
    const std::string what = base::Printable(mark.at("text").get<std::string>());
    absl::StrAppend(&text, "  ", TimeText(mark.at("time")), "  ", base::Printable(mark.at("kind").get<std::string>()),
                    process, what.empty() ? "" : ": ", what, "\n");
  }
  return text;
}

std::string ServicesText(const json& document) {
  report::Table table({{"SERVICE"}, {"FIRST"}, {"LAST"}, {"PROCESSES", true}, {"RUNNING", true}});
  for (const json& service : document.at("services")) {
    table.Add({base::Printable(service.at("name").get<std::string>()), TimeText(service.at("first")),
               TimeText(service.at("last")), absl::StrCat(service.at("processes").get<uint64_t>()),
               absl::StrCat(service.at("running").get<uint64_t>())});
  }
  return table.Text();
}

absl::StatusOr<std::string> Target(const HistoryFlags& flags) {
  if (flags.subject.empty()) return std::string("/history.json");
  const absl::Time now = base::WallNow();
  const absl::StatusOr<absl::Time> since = ParseMoment(flags.since, now, absl::LocalTimeZone());
  if (!since.ok()) return absl::InvalidArgumentError(absl::StrCat("--since ", since.status().message()));
  const absl::StatusOr<absl::Time> until = ParseMoment(flags.until, now, absl::LocalTimeZone());
  if (!until.ok()) return absl::InvalidArgumentError(absl::StrCat("--until ", until.status().message()));
  if (*since >= *until) return absl::InvalidArgumentError("--since must be before --until");
  const auto seconds = [](absl::Time time) { return absl::ToUnixMillis(time) / 1000; };
  // Points of this second are among them.
  return absl::StrCat(HistoryTarget(flags.subject), "&since=", seconds(*since), "&until=", seconds(*until) + 1,
                      "&points=", kPoints);
}

std::string Text(const HistoryFlags& flags, const json& document) {
  if (flags.subject.empty()) return ServicesText(document);
  const size_t width = TerminalWidth(STDOUT_FILENO);
  return absl::StrCat(base::Printable(document.at("name").get<std::string>()), "\n", PointsText(document),
                      GrownText(document, width), MarksText(document));
}

int History(const HistoryFlags& flags) {
  const absl::StatusOr<std::string> target = Target(flags);
  if (!target.ok()) return Report(target.status());
  const Client client(flags.socket);
  const absl::StatusOr<json> document = client.GetJson(*target);
  if (!document.ok()) return Report(document.status());
  if (flags.json) {
    fputs(ToText(exporter::Json(*document)).c_str(), stdout);
    return kSuccess;
  }
  try {
    if (!flags.subject.empty() && document->at("points").empty()) {
      return Report(absl::NotFoundError(absl::StrCat("there is no history of ", base::Printable(flags.subject),
                                                     " between these times; see --since")));
    }
    if (flags.subject.empty() && document->at("services").empty()) {
      base::Say(geteuid() == 0 ? "there is no history yet" : "there is no history of your processes yet");
    }
    fputs(Text(flags, *document).c_str(), stdout);
  } catch (const json::exception&) {
    return Report(client.Unexpected(*target, "a field is missing or has another type"));
  }
  return kSuccess;
}

}  // namespace

void AddHistory(CommandLine& line) {
  Command command = line.AddCommand("history", "show what a service, a command or a process held over time");
  auto flags = std::make_shared<HistoryFlags>();
  command.Add("NAME", flags->subject, "show this service, command or PID (default: list what there is)").Type("");
  command
      .Add("--since", flags->since, "begin at this moment: 3d, 90m, 14:30, yesterday, '2026-08-31 14:30' (default: 1d)")
      .Type("WHEN");
  command.Add("--until", flags->until, "end at this moment (default: now)").Type("WHEN");
  command.AddFlag("--json", flags->json, "print one JSON document instead of text");
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return History(*flags); });
}

}  // namespace heaptap::cli
