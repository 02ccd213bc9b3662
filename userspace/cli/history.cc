// SPDX-License-Identifier: Apache-2.0
//
// heaptap history: shows what a service, a command or a process held over time.
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/subjects/history_profile.h"
#include "userspace/cli/subjects/live_change.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/json_text.h"
#include "userspace/cli/words/moment.h"
#include "userspace/cli/words/terminal.h"
#include "userspace/json/json.h"
#include "userspace/report/human.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/rows.h"
#include "userspace/report/selection.h"
#include "userspace/report/text.h"

namespace heaptap::cli {
namespace {

using report::HumanBytes;
using report::kUnknown;

constexpr size_t kShownRows = 20;  // of the table: fits on a terminal
constexpr int kPoints = 600;
constexpr size_t kGrownPaths = 5;
constexpr size_t kMarks = 20;
constexpr size_t kFrames = 6;     // of a path in a line
constexpr size_t kBarWidth = 12;  // leaves room for the figures on 80 columns

struct HistoryFlags {
  std::string socket = DefaultSocket();
  std::string subject;
  std::string since = "1d";
  std::string until = "now";
  bool json = false;
};

std::string TimeText(const nlohmann::json& seconds) {
  return absl::FormatTime("%m-%d %H:%M:%S", absl::UnixEpoch() + absl::Seconds(seconds.get<double>()),
                          absl::LocalTimeZone());
}

std::string Signed(double bytes) { return absl::StrCat(bytes < 0 ? "-" : "+", HumanBytes(std::abs(bytes))); }

std::string BytesOrUnknown(const nlohmann::json& value) {
  return value.is_null() ? kUnknown : HumanBytes(value.get<double>());
}

// The functions of a path, innermost first, as readable as a line allows.
std::string PathText(const report::NamedProfile& profile, const report::Path& path) {
  if (path.frames.empty()) return report::NameOfUnknown();
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(path.frames.size(), kFrames); i++) {
    names.push_back(report::NameOf(profile, profile.frame(path.frames[i]), {}));
  }
  if (path.frames.size() > kFrames) names.emplace_back("...");
  return absl::StrJoin(names, " < ");
}

// The points for which a row is printed: evenly spread, including the last.
std::vector<size_t> ShownPoints(size_t count) {
  std::vector<size_t> shown;
  const size_t rows = std::min(count, kShownRows);
  shown.reserve(rows);
  for (size_t i = 0; i < rows; i++) shown.push_back(rows == 1 ? count - 1 : i * (count - 1) / (rows - 1));
  return shown;
}

// The text of a change, such as "+14.1M~": marked if it may be noise.
std::string GrowthText(const report::Measure& change, bool& has_noise) {
  const bool is_noise = report::IsNoise(change);
  has_noise |= is_noise;
  return absl::StrCat(Signed(change.bytes), is_noise ? report::kNoiseMark : "");
}

std::string PointsText(const nlohmann::json& document, const history::Timeline& timeline, bool& has_noise) {
  const nlohmann::json& points = document.at("points");
  report::Table table(
      {{"TIME"}, {"PROCESSES", true}, {"LIVE", true}, {"+-", true}, {"GROWTH", true}, {"RSS", true}, {""}});
  double peak = 1;
  size_t peak_point = 0;
  for (size_t i = 0; i < points.size(); i++) {
    const auto live = points[i].at("live_bytes").get<double>();
    if (live > peak) peak_point = i;
    peak = std::max(peak, live);
  }
  std::optional<size_t> last;
  for (const size_t i : ShownPoints(points.size())) {
    const nlohmann::json& point = points[i];
    const auto live = point.at("live_bytes").get<double>();
    const std::string growth =
        last.has_value() ? GrowthText(FindLiveChange(timeline, *last, i).total, has_noise) : kUnknown;
    table.Add({TimeText(point.at("time")), absl::StrCat(point.at("processes").get<int>()), HumanBytes(live),
               HumanBytes(FindLive(timeline, i).Error()), growth, BytesOrUnknown(point.at("rss_bytes")),
               std::string(static_cast<size_t>(kBarWidth * std::clamp(live / peak, 0.0, 1.0)), '#')});
    last = i;
  }
  return absl::StrCat(table.Text(), "peak: ", HumanBytes(peak), " at ", TimeText(points[peak_point].at("time")), "\n");
}

std::string GrownText(const history::Timeline& timeline, size_t width, bool& has_noise) {
  const LiveChange change = FindLiveChange(timeline, 0, timeline.points.size() - 1);
  const auto find = [&change](uint64_t address) {
    const auto found = change.symbols.find(address);
    return found == change.symbols.end() ? std::vector<profile::SourceFrame>() : found->second;
  };
  const report::NamedProfile named(change.difference, find, change.measures);
  std::vector<report::Path> grown = report::MergePaths(named, *report::Select(named, {.fold = true}), {});
  std::erase_if(grown, [](const report::Path& path) { return path.measures.live.bytes <= 0; });
  if (grown.size() > kGrownPaths) grown.resize(kGrownPaths);
  std::string text = grown.empty() ? "" : "\nwhat grew most, from the first to the last of these times:\n";
  for (const report::Path& path : grown) {
    const report::Measure& live = path.measures.live;
    const std::string error = live.variance > 0 ? absl::StrCat(" +- ", HumanBytes(live.Error())) : "";
    has_noise |= report::IsNoise(live);
    const std::string line = absl::StrCat("  ", Signed(live.bytes), error,
                                          report::IsNoise(live) ? report::kNoiseMark : "", "  ", PathText(named, path));
    absl::StrAppend(&text, width == 0 ? line : report::Fit(line, width), "\n");
  }
  return text;
}

std::string MarksText(const nlohmann::json& document) {
  const nlohmann::json& marks = document.at("marks");
  std::string text = marks.empty() ? "" : "\nwhat happened:\n";
  const size_t first = marks.size() > kMarks ? marks.size() - kMarks : 0;
  if (first > 0) absl::StrAppend(&text, "  ... ", first, " earlier ones: see --json\n");
  for (size_t i = first; i < marks.size(); i++) {
    const nlohmann::json& mark = marks[i];
    const std::string process = mark.at("pid").is_null() ? "" : absl::StrCat(" of ", mark.at("pid").get<int>());
    const std::string what = base::Printable(mark.at("text").get<std::string>());
    absl::StrAppend(&text, "  ", TimeText(mark.at("time")), "  ", base::Printable(mark.at("kind").get<std::string>()),
                    process, what.empty() ? "" : ": ", what, "\n");
  }
  return text;
}

std::string ServicesText(const nlohmann::json& document) {
  report::Table table({{"SERVICE"}, {"FIRST"}, {"LAST"}, {"PROCESSES", true}, {"RUNNING", true}});
  for (const nlohmann::json& service : document.at("services")) {
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
  // The range includes the points of the last second.
  return absl::StrCat(HistoryTarget(flags.subject), "&since=", seconds(*since), "&until=", seconds(*until) + 1,
                      "&points=", kPoints);
}

std::string Text(const HistoryFlags& flags, const nlohmann::json& document) {
  if (flags.subject.empty()) return ServicesText(document);
  const size_t width = TerminalWidth(STDOUT_FILENO);
  const history::Timeline timeline = ReadTimelineJson(document);
  bool has_noise = false;
  const std::string points = PointsText(document, timeline, has_noise);
  const std::string grown = GrownText(timeline, width, has_noise);
  return absl::StrCat(base::Printable(document.at("name").get<std::string>()), "\n", points, grown,
                      has_noise ? "\n" : "", report::NoiseNote(has_noise), MarksText(document));
}

int History(const HistoryFlags& flags) {
  const absl::StatusOr<std::string> target = Target(flags);
  if (!target.ok()) return Report(target.status());
  const Client client(flags.socket);
  const absl::StatusOr<nlohmann::json> document = client.GetJson(*target);
  if (!document.ok()) return Report(document.status());
  if (flags.json) {
    fputs(ToText(json::Json(*document)).c_str(), stdout);
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
  } catch (const std::exception&) {
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
