// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/speedscope.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/json/json.h"
#include "userspace/report/rows.h"

namespace heaptap::report {
namespace {

using json::Json;

constexpr char kSchema[] = "https://www.speedscope.app/file-format-schema.json";

// Numbers the frames that paths use, in the order of their first use.
class Frames {
 public:
  explicit Frames(const NamedProfile& profile) : profile_(profile) {}

  uint64_t At(FrameId id) {
    const auto [entry, is_new] = numbers_.try_emplace(id, numbers_.size());
    if (is_new) Add(profile_.frame(id));
    return entry->second;
  }
  uint64_t Unknown() {
    if (!unknown_.has_value()) {
      // FrameIds are numbers of frames, so none is this large.
      unknown_ = numbers_.try_emplace(UINT32_MAX, numbers_.size()).first->second;
      list_.Add({{"name", NameOfUnknown()}});
    }
    return *unknown_;
  }
  Json Take() { return std::move(list_); }

 private:
  void Add(const NamedFrame& frame) {
    Json entry = {{"name", profile_.text(frame.function)}};
    if (frame.file != 0) entry.Set("file", profile_.text(frame.file));
    if (frame.line != 0) entry.Set("line", frame.line);
    list_.Add(std::move(entry));
  }

  const NamedProfile& profile_;
  absl::flat_hash_map<FrameId, uint64_t> numbers_;
  std::optional<uint64_t> unknown_;
  Json list_ = Json::List();
};

Json ProfileOf(absl::Span<const Path> paths, Value value, Unit unit, Frames& frames) {
  Json samples = Json::List();
  Json weights = Json::List();
  double total = 0;
  for (const Path& path : paths) {
    const double weight = Of(Of(path.measures, value), unit);
    if (!(weight > 0)) continue;
    Json stack = Json::List();
    for (size_t i = path.frames.size(); i-- > 0;) stack.Add(frames.At(path.frames[i]));
    if (path.frames.empty()) stack.Add(frames.Unknown());
    samples.Add(std::move(stack));
    weights.Add(weight);
    total += weight;
  }
  return {{"type", "sampled"},
          {"name", absl::StrCat(WordFor(value), " ", unit == Unit::kBytes ? "bytes" : "objects")},
          {"unit", unit == Unit::kBytes ? "bytes" : "none"},
          {"startValue", 0},
          {"endValue", total},
          {"samples", std::move(samples)},
          {"weights", std::move(weights)}};
}

}  // namespace

std::string Speedscope(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject) {
  Frames frames(profile);
  Json profiles = Json::List();
  for (const Value value : {Value::kLive, Value::kAllocated}) {
    if (value == Value::kAllocated && !subject.has_allocated) continue;
    for (const Unit unit : {Unit::kBytes, Unit::kObjects}) profiles.Add(ProfileOf(paths, value, unit, frames));
  }
  return Json{{"$schema", kSchema},
              {"name", subject.name},
              {"exporter", absl::StrCat("heaptap ", HEAPTAP_VERSION)},
              {"shared", {{"frames", frames.Take()}}},
              {"profiles", std::move(profiles)}}
             .Text() +
         "\n";
}

}  // namespace heaptap::report
