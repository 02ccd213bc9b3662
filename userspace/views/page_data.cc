// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/page_data.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/json/json.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/json_column.h"
#include "userspace/report/measure_columns.h"
#include "userspace/report/readable.h"
#include "userspace/views/page_shares.h"

namespace heaptap::report {
namespace {

using json::Json;

// Bits of `flags`; also in userspace/web/profile.ts.
constexpr int64_t kInlineFlag = 1;
constexpr int64_t kHasSymbolFlag = 2;
constexpr int64_t kPlumbingFlag = 4;
constexpr int64_t kStartFlag = 8;

class PageWriter {
 public:
  PageWriter(const NamedProfile& profile, const PageOptions& options) : profile_(profile), options_(options) {
    Text("");
  }

  std::string Write(absl::Span<const Path> paths, const Subject& subject) && {
    is_difference_ = subject.is_difference;
    for (const Path& path : paths) AddPath(path);
    // The shares are made before the texts are written, because shares have texts too.
    const std::string shares = options_.shares == nullptr ? "" : PageShares(*options_.shares, [this](std::string text) {
      return Text(std::move(text));
    });
    return absl::StrCat("{\"schema_version\":", json::kSchemaVersion, ",\"subject\":", SubjectText(subject),
                        ",\"texts\":", Json(texts_).Text(), ",\"frames\":{",
                        Joined({&function_, &short_, &file_, &line_, &library_, &flags_}), "},\"stacks\":{",
                        Joined({&parent_, &frame_}), "},\"paths\":{", Joined({&stack_, &truncated_}), ",", live_.Text(),
                        ",", allocated_.Text(), is_difference_ ? "," : "",
                        is_difference_ ? Joined({&before_bytes_, &before_objects_}) : "", "}", shares, "}");
  }

 private:
  static std::string Joined(std::initializer_list<const JsonColumn*> columns) {
    std::string text;
    for (const JsonColumn* column : columns) absl::StrAppend(&text, text.empty() ? "" : ",", column->Text());
    return text;
  }

  std::string SubjectText(const Subject& subject) const {
    Json text = {{"name", subject.name},
                 {"pid", options_.pid},
                 {"period", subject.period},
                 {"resident_bytes", subject.resident_bytes},
                 {"warnings", subject.warnings},
                 {"is_difference", subject.is_difference},
                 {"has_allocated", subject.has_allocated}};
    if (subject.several_periods) text.Set("several_periods", true);
    if (subject.allocated_bytes.has_value()) text.Set("allocated_bytes", *subject.allocated_bytes);
    if (options_.time.has_value()) text.Set("time", static_cast<double>(absl::ToUnixMillis(*options_.time)) / 1000);
    if (!subject.coverage.empty()) {
      Json parts = Json::List();
      for (const profile::CoveragePart& part : subject.coverage) {
        parts.Add({{"name", part.name}, {"bytes", part.bytes}, {"note", part.note}});
      }
      text.Set("coverage", std::move(parts));
    }
    return text.Text();
  }

  int64_t Text(std::string text) {
    const auto [entry, is_new] = text_numbers_.try_emplace(std::move(text), static_cast<int64_t>(texts_.size()));
    if (is_new) texts_.push_back(entry->first);
    return entry->second;
  }

  int64_t File(TextId id) {
    const absl::string_view path = profile_.text(id);
    return Text(std::string(options_.source_paths ? path : profile::FileName(path)));
  }

  int64_t Frame(FrameId id) {
    const auto [entry, is_new] = frame_numbers_.try_emplace(id, static_cast<int64_t>(frame_numbers_.size()));
    if (!is_new) return entry->second;
    const NamedFrame& frame = profile_.frame(id);
    const absl::string_view name = profile_.text(frame.function);
    function_.Add(Text(std::string(name)));
    short_.Add(Text(ReadableName(name)));
    file_.Add(File(frame.file));
    line_.Add(frame.line);
    library_.Add(File(frame.library));
    flags_.Add((frame.is_inline ? kInlineFlag : 0) | (frame.has_symbol ? kHasSymbolFlag : 0) |
               (IsPlumbing(name, profile_.text(frame.file), frame.is_inline) ? kPlumbingFlag : 0) |
               (IsStart(name) ? kStartFlag : 0));
    return entry->second;
  }

  void AddPath(const Path& path) {
    int64_t stack = -1;
    for (size_t i = path.frames.size(); i-- > 0;) {
      const int64_t frame = Frame(path.frames[i]);
      const auto [entry, is_new] =
          stack_numbers_.try_emplace({stack, frame}, static_cast<int64_t>(stack_numbers_.size()));
      if (is_new) {
        parent_.Add(stack);
        frame_.Add(frame);
      }
      stack = entry->second;
    }
    stack_.Add(stack);
    truncated_.Add(path.truncated ? 1 : 0);
    live_.Add(path.measures.live);
    allocated_.Add(path.measures.allocated);
    if (!is_difference_) return;
    before_bytes_.AddEstimate(path.measures.before.bytes);
    before_objects_.AddEstimate(path.measures.before.objects);
  }

  const NamedProfile& profile_;
  const PageOptions& options_;
  std::vector<std::string> texts_;
  absl::flat_hash_map<std::string, int64_t> text_numbers_;
  absl::flat_hash_map<FrameId, int64_t> frame_numbers_;
  absl::flat_hash_map<std::pair<int64_t, int64_t>, int64_t> stack_numbers_;  // by the caller's entry and the frame
  JsonColumn function_{"function"}, short_{"short"}, file_{"file"}, line_{"line"}, library_{"library"}, flags_{"flags"};
  JsonColumn parent_{"parent"}, frame_{"frame"};
  JsonColumn stack_{"stack"}, truncated_{"truncated"};
  MeasureColumns live_{"live"}, allocated_{"allocated"};
  bool is_difference_ = false;
  JsonColumn before_bytes_{"before_bytes"}, before_objects_{"before_objects"};
};

}  // namespace

std::string PageData(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject,
                     const PageOptions& options) {
  return PageWriter(profile, options).Write(paths, subject);
}

}  // namespace heaptap::report
