// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/past_growth.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/cli/subjects/history_profile.h"

namespace heaptap::cli {
namespace {

// The window is long enough to show slow leaks, and so short that the start of a program is soon over.
constexpr absl::Duration kWindow = absl::Hours(1);

struct Moments {
  absl::Time first;
  absl::Time last;
};

// The moments of the running process: another process may have had the PID before.
std::optional<Moments> FindMoments(const Client& client, const std::string& pid) {
  const absl::StatusOr<nlohmann::json> document =
      client.GetJson(absl::StrCat(HistoryTarget(pid), "&paths=0&since=-", absl::ToInt64Seconds(kWindow)));
  if (!document.ok()) return std::nullopt;
  try {
    double started = 0;
    for (const nlohmann::json& process : document->at("processes")) {
      if (process.at("ended").is_null()) started = process.at("started").get<double>();
    }
    std::optional<Moments> moments;
    for (const nlohmann::json& point : document->at("points")) {
      const auto seconds = point.at("time").get<double>();
      if (seconds < started) continue;
      const absl::Time time = absl::UnixEpoch() + absl::Seconds(seconds);
      if (!moments.has_value()) moments = {.first = time, .last = time};
      moments->last = time;
    }
    return moments;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<PastGrowth> FindPastGrowth(const Client& client, pid_t pid) {
  const std::string name = absl::StrCat(pid);
  const std::optional<Moments> moments = FindMoments(client, name);
  if (!moments.has_value() || moments->first == moments->last) return std::nullopt;
  HistoryProfiles profiles(client);
  absl::StatusOr<Dump> before = profiles.Fetch({.name = name, .time = moments->first});
  absl::StatusOr<Dump> after = profiles.Fetch({.name = name, .time = moments->last});
  if (!before.ok() || !after.ok()) return std::nullopt;
  Growth growth = FindGrowth(before->profile, after->profile);
  after->symbols.merge(before->symbols);
  return PastGrowth{
      .growth = std::move(growth), .symbols = std::move(after->symbols), .time = moments->last - moments->first};
}

}  // namespace heaptap::cli
