// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/top_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/report/human.h"

namespace heaptap::report {
namespace {

const char* TitleOf(By by) {
  switch (by) {
    case By::kFunction:
      return "FUNCTION";
    case By::kLine:
      return "FUNCTION AND LINE";
    case By::kLibrary:
      return "LIBRARY";
    case By::kThread:
      return "THREAD";
    case By::kSize:
      return "SIZE";
    case By::kAge:
      return "AGE";
  }
  return "";
}

// The width of the columns before the name.
constexpr size_t kFiguresWidth = 58;

}  // namespace

std::string TopText(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show,
                    const TextOptions& options) {
  const std::vector<Row> rows = Rows(profile, paths, show, false);
  const double total = Of(Of(profile.total(), show.value), show.unit);
  const bool has_errors = show.unit == Unit::kBytes;
  std::vector<Table::Column> columns = {{"SELF", true}, {has_errors ? "+-" : "", true}};
  if (options.has_percentages) columns.push_back({"SHARE", true});
  columns.push_back({"TOTAL", true});
  if (options.has_percentages) columns.push_back({"SHARE", true});
  columns.push_back({"SAMPLES", true});
  columns.push_back({TitleOf(show.by)});
  Table table(std::move(columns));
  const size_t shown = options.top == 0 ? rows.size() : std::min(options.top, rows.size());
  bool has_noise = false;
  for (const Row& row : absl::MakeSpan(rows).subspan(0, shown)) {
    has_noise |= has_errors && IsNoise(row.self);
    std::vector<std::string> cells = {Figure(Of(row.self, show.unit), show.unit), Error(row.self, show.unit)};
    if (options.has_percentages) cells.push_back(Percent(Of(row.self, show.unit), total));
    cells.push_back(Figure(Of(row.total, show.unit), show.unit));
    if (options.has_percentages) cells.push_back(Percent(Of(row.total, show.unit), total));
    cells.push_back(absl::StrCat(row.total.samples));
    cells.push_back(Fit(row.name, WidthAfter(kFiguresWidth, options.width)));
    table.Add(std::move(cells));
  }
  std::string text = table.Text();
  if (shown < rows.size()) absl::StrAppend(&text, "and ", rows.size() - shown, " more (see --limit)\n");
  return absl::StrCat(text, NoiseNote(has_noise));
}

}  // namespace heaptap::report
