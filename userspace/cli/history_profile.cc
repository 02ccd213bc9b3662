// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/history_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "heaptap/contract.h"
#include "userspace/cli/url_text.h"

namespace heaptap::cli {
namespace {

using nlohmann::json;

// Each library has its own range of made addresses.
constexpr uint64_t kBytesOfLibrary = uint64_t{1} << 32;

// The history keeps the paths that matter, and one row for all others.
constexpr char kOthers[] = "[all other call paths]";

std::string TextOrEmpty(const json& value) { return value.is_null() ? "" : value.get<std::string>(); }

}  // namespace

std::string HistoryTarget(const std::string& name) {
  pid_t pid = 0;
  const bool is_pid = absl::SimpleAtoi(name, &pid) && pid > 0;
  return absl::StrCat("/history.json?", is_pid ? "pid=" : "name=", UrlText(name));
}

uint64_t HistoryProfiles::AddressOf(const std::string& library, const std::vector<exporter::SourceFrame>& frames,
                                    uint64_t offset) {
  std::string key = library;
  for (const exporter::SourceFrame& frame : frames) {
    absl::StrAppend(&key, absl::string_view("\0", 1), frame.function, absl::string_view("\0", 1), frame.line);
  }
  if (frames.empty()) absl::StrAppend(&key, absl::string_view("\0", 1), offset);
  const uint64_t number = libraries_.try_emplace(library, libraries_.size() + 1).first->second;
  // Call addresses are one below return addresses, so places are two apart.
  return addresses_.try_emplace(std::move(key), number * kBytesOfLibrary + 2 * addresses_.size() + 2).first->second;
}

absl::StatusOr<Dump> HistoryProfiles::Fetch(const NamedMoment& moment) {
  const std::string target =
      absl::StrFormat("%s&at=%.3f", HistoryTarget(moment.name), absl::ToDoubleSeconds(moment.time - absl::UnixEpoch()));
  const absl::StatusOr<json> document = client_.GetJson(target);
  if (!document.ok()) return document.status();
  try {
    absl::StatusOr<Dump> dump = Make(*document);
    if (!dump.ok()) return client_.Unexpected(target, dump.status().message());
    return dump;
  } catch (const json::exception&) {
    return client_.Unexpected(target, "a field is missing or has another type");
  }
}

absl::StatusOr<Dump> HistoryProfiles::Make(const json& document) {
  Dump dump;
  const json& points = document.at("points");
  if (points.size() != 1) return absl::DataLossError("it has no point");
  dump.profile.pid = points[0].at("pid").get<pid_t>();
  const auto lg_sample = points[0].at("lg_sample").get<uint32_t>();
  if (lg_sample > HEAPTAP_MAX_LG_SAMPLE) return absl::DataLossError("a rate is too large");
  dump.profile.period = uint64_t{1} << lg_sample;
  std::map<int64_t, std::vector<uint64_t>> paths;
  for (const json& path : document.at("paths")) {
    std::vector<uint64_t>& addresses = paths[path.at("id").get<int64_t>()];
    std::vector<exporter::SourceFrame> inlined;
    for (const json& frame : path.at("frames")) {
      const bool has_name = !frame.at("function").is_null();
      if (has_name) {
        inlined.push_back({.function = TextOrEmpty(frame.at("function")),
                           .file = TextOrEmpty(frame.at("file")),
                           .line = frame.at("line").is_null() ? 0 : frame.at("line").get<uint32_t>()});
      }
      if (frame.at("inline").get<bool>()) continue;
      const std::string library = TextOrEmpty(frame.at("library"));
      const uint64_t call = AddressOf(library, inlined, frame.at("offset").get<uint64_t>());
      if (inlined.empty()) {
        const std::string place = library.substr(library.rfind('/') + 1);
        inlined.push_back({.function = absl::StrCat(place, place.empty() ? "" : "+", "0x",
                                                    absl::Hex(frame.at("offset").get<uint64_t>()))});
      }
      dump.symbols[call] = std::exchange(inlined, {});
      addresses.push_back(call + 1);
    }
  }
  // Paths that differ only in their lines have the same frames.
  std::map<std::vector<uint64_t>, profile::Estimate> held;
  const uint64_t others = AddressOf("", {{.function = kOthers}}, 0);
  dump.symbols[others] = {{.function = kOthers}};
  for (const json& row : document.at("rows")) {
    const auto path = paths.find(row.at(1).get<int64_t>());
    profile::Estimate estimate = {
        .samples = row.at(4).get<uint64_t>(), .objects = row.at(3).get<double>(), .bytes = row.at(2).get<double>()};
    // The mean size of the objects is that of the sampled ones, if they have one size.
    const double size = estimate.objects > 0 ? estimate.bytes / estimate.objects : 0;
    estimate.sampled_bytes = profile::ToWhole(size * static_cast<double>(estimate.samples));
    held[path == paths.end() ? std::vector<uint64_t>{others + 1} : path->second] += estimate;
  }
  for (auto& [frames, estimate] : held) {
    dump.profile.contexts.push_back({.frames = frames, .threads = {{.live = estimate}}});
  }
  for (const auto& [library, number] : libraries_) {
    if (library.empty()) continue;
    dump.profile.mappings.push_back(
        {.start = number * kBytesOfLibrary, .end = (number + 1) * kBytesOfLibrary, .path = library});
  }
  std::sort(dump.profile.mappings.begin(), dump.profile.mappings.end(),
            [](const elf::Mapping& a, const elf::Mapping& b) { return a.start < b.start; });
  return dump;
}

}  // namespace heaptap::cli
