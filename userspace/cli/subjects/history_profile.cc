// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/history_profile.h"

#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/words/url_text.h"

namespace heaptap::cli {
namespace {

std::string TextOrEmpty(const nlohmann::json& value) { return value.is_null() ? "" : value.get<std::string>(); }

}  // namespace

history::Timeline ReadTimelineJson(const nlohmann::json& document) {
  history::Timeline timeline;
  for (const nlohmann::json& point : document.at("points")) {
    timeline.points.push_back(
        {.pid = point.at("pid").get<pid_t>(), .lg_sample = point.at("lg_sample").get<uint32_t>()});
  }
  for (const nlohmann::json& path : document.at("paths")) {
    history::TimelinePath& read = timeline.paths.emplace_back();
    read.id = path.at("id").get<int64_t>();
    for (const nlohmann::json& frame : path.at("frames")) {
      read.frames.push_back({.source = {.function = TextOrEmpty(frame.at("function")),
                                        .file = TextOrEmpty(frame.at("file")),
                                        .line = frame.at("line").is_null() ? 0 : frame.at("line").get<uint32_t>()},
                             .library = TextOrEmpty(frame.at("library")),
                             .offset = frame.at("offset").get<uint64_t>(),
                             .is_inlined = frame.at("inline").get<bool>()});
    }
  }
  for (const nlohmann::json& row : document.at("rows")) {
    timeline.points.at(row.at(0).get<size_t>()).rows[row.at(1).get<int64_t>()] +=
        {.live_bytes = row.at(2).get<uint64_t>(),
         .live_objects = row.at(3).get<uint64_t>(),
         .samples = row.at(4).get<uint64_t>(),
         .allocated_samples = row.at(5).get<uint64_t>(),
         .deviation = row.at(6).get<uint64_t>()};
  }
  return timeline;
}

std::string HistoryTarget(const std::string& name) {
  pid_t pid = 0;
  const bool is_pid = absl::SimpleAtoi(name, &pid) && pid > 0;
  return absl::StrCat("/history.json?", is_pid ? "pid=" : "name=", UrlText(name));
}

absl::StatusOr<absl::Time> HistoryProfiles::LastPoint(const std::string& name) const {
  const std::string target = absl::StrCat(HistoryTarget(name), "&points=2&paths=0");
  const absl::StatusOr<nlohmann::json> document = client_.GetJson(target);
  if (!document.ok()) return document.status();
  try {
    const nlohmann::json& points = document->at("points");
    if (points.empty()) {
      return absl::NotFoundError(absl::StrCat("there is no moment of ", base::Printable(name), " in the history"));
    }
    return absl::UnixEpoch() + absl::Seconds(points.back().at("time").get<double>());
  } catch (const nlohmann::json::exception&) {
    return client_.Unexpected(target, "a field is missing or has another type");
  }
}

absl::StatusOr<Dump> HistoryProfiles::Fetch(const NamedMoment& moment) {
  const absl::StatusOr<absl::Time> time = moment.is_last ? LastPoint(moment.name) : moment.time;
  if (!time.ok()) return time.status();
  const std::string target =
      absl::StrFormat("%s&at=%.3f", HistoryTarget(moment.name), absl::ToDoubleSeconds(*time - absl::UnixEpoch()));
  const absl::StatusOr<nlohmann::json> document = client_.GetJson(target);
  if (!document.ok()) return document.status();
  history::Timeline timeline;
  try {
    if (document->at("points").size() != 1) return client_.Unexpected(target, "it has not one point");
    timeline = ReadTimelineJson(*document);
  } catch (const std::exception&) {
    return client_.Unexpected(target, "a field is missing or has another type");
  }
  history::MomentProfile made = profiles_.Make(timeline);
  return Dump{.profile = std::move(made.profile), .symbols = std::move(made.symbols)};
}

}  // namespace heaptap::cli
