// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/report_json.h"

#include <algorithm>
#include <utility>

namespace heaptap::report {
namespace {

using json::Json;

Json ToJson(const Measure& measure) {
  return {
      {"bytes", measure.bytes}, {"error", measure.Error()}, {"objects", measure.objects}, {"samples", measure.samples}};
}

Json TextOrNull(absl::string_view text) { return text.empty() ? Json() : Json(text); }

Json ToJson(const NamedProfile& profile, const NamedFrame& frame) {
  return {{"function", frame.has_symbol ? Json(profile.text(frame.function)) : Json()},
          {"file", TextOrNull(profile.text(frame.file))},
          {"line", frame.line == 0 ? Json() : Json(frame.line)},
          {"library", TextOrNull(profile.text(frame.library))},
          {"place", frame.has_symbol ? Json() : Json(profile.text(frame.function))},
          {"inline", frame.is_inline}};
}

}  // namespace

Json ReportJson(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, size_t top) {
  // null: the profile does not say what was allocated.
  const auto known = [&](const Measure& measure) { return subject.has_allocated ? ToJson(measure) : Json(); };
  Json list = Json::List();
  for (const Path& path : paths.subspan(0, top == 0 ? paths.size() : std::min(top, paths.size()))) {
    Json frames = Json::List();
    for (const FrameId frame : path.frames) frames.Add(ToJson(profile, profile.frame(frame)));
    list.Add({{"live", ToJson(path.measures.live)},
              {"allocated", known(path.measures.allocated)},
              {"freed", known(path.measures.freed)},
              {"truncated", path.truncated},
              {"frames", std::move(frames)}});
  }
  return {{"schema_version", json::kSchemaVersion},
          {"subject", subject.name},
          {"period", subject.period},
          {"several_periods", subject.several_periods},
          {"live", ToJson(profile.total().live)},
          {"allocated", known(profile.total().allocated)},
          {"freed", known(profile.total().freed)},
          {"warnings", subject.warnings},
          {"call_paths", std::move(list)}};
}

}  // namespace heaptap::report
