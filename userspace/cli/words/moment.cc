// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/moment.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"

namespace heaptap::cli {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
constexpr absl::Duration kWeek = absl::Hours(7 * 24);

std::optional<absl::Duration> ParseAge(absl::string_view text) {
  absl::Duration age;
  for (const auto& [unit, length] : {std::pair<absl::string_view, absl::Duration>("d", kDay), {"w", kWeek}}) {
    double count = 0;
    if (absl::EndsWith(text, unit) && absl::SimpleAtod(text.substr(0, text.size() - 1), &count)) return length * count;
  }
  if (!absl::ParseDuration(text, &age)) return std::nullopt;
  return age;
}

std::optional<absl::Time> ParseClock(absl::string_view text, absl::Time now, absl::TimeZone zone) {
  for (const char* format :
       {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"}) {
    absl::Time time;
    if (absl::ParseTime(format, text, zone, &time, nullptr)) return time;
  }
  const std::string today = absl::FormatTime("%Y-%m-%d ", now, zone);
  for (const char* format : {"%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"}) {
    absl::Time time;
    if (!absl::ParseTime(format, absl::StrCat(today, text), zone, &time, nullptr)) continue;
    return time > now ? time - kDay : time;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<absl::Time> ParseMoment(absl::string_view text, absl::Time now, absl::TimeZone zone) {
  if (text == "now") return now;
  if (text == "yesterday") return now - kDay;
  const std::optional<absl::Duration> age = ParseAge(text);
  const std::optional<absl::Time> clock = age.has_value() ? now - *age : ParseClock(text, now, zone);
  if (!clock.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(base::Printable(text),
                     ": expected a moment, such as now, yesterday, 90s, 2h, 3d, 14:30, 2026-08-31 "
                     "or '2026-08-31 14:30'"));
  }
  if (*clock > now || *clock < absl::UnixEpoch()) {
    return absl::InvalidArgumentError(absl::StrCat(base::Printable(text), ": this moment is not in the past"));
  }
  return *clock;
}

std::optional<absl::StatusOr<NamedMoment>> ParseNamedMoment(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos || at == 0) return std::nullopt;
  const absl::Time now = base::WallNow();
  const std::string name = text.substr(0, at);
  const std::string moment = text.substr(at + 1);
  if (moment == "last") return NamedMoment{.name = name, .time = now, .is_last = true};
  const absl::StatusOr<absl::Time> time = ParseMoment(moment, now, absl::LocalTimeZone());
  if (!time.ok()) return time.status();
  return NamedMoment{.name = name, .time = *time};
}

}  // namespace heaptap::cli
