// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/show/report_views.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/show/graphviz.h"
#include "userspace/cli/words/json_text.h"
#include "userspace/formats/collapsed.h"
#include "userspace/formats/jeprof_symbolized.h"
#include "userspace/formats/pprof.h"
#include "userspace/report/rows.h"
#include "userspace/views/dot.h"
#include "userspace/views/firefox.h"
#include "userspace/views/flame_svg.h"
#include "userspace/views/jeprof_text.h"
#include "userspace/views/markdown.h"
#include "userspace/views/page_data.h"
#include "userspace/views/peek_text.h"
#include "userspace/views/perfetto.h"
#include "userspace/views/report_json.h"
#include "userspace/views/speedscope.h"
#include "userspace/views/top_text.h"
#include "userspace/views/tree_text.h"
#include "userspace/web/assets.h"

namespace heaptap::cli {
namespace {

using report::Direction;
using report::Path;

// Call paths of the short form, and rows of a table.
constexpr uint64_t kShortPaths = 5;
constexpr uint64_t kRows = 20;
// The most names in a message.
constexpr size_t kMaxMeant = 3;
// Like jeprof's --nodecount.
constexpr uint64_t kNodes = 80;

absl::StatusOr<std::vector<Path>> SelectPaths(const report::NamedProfile& profile, const ReportInput& input,
                                              bool fold) {
  report::Filters filters = input.filters;
  if (filters.hide.empty()) filters.hide = input.exclude;
  filters.fold = fold && !input.show.full_names;
  return report::Select(profile, filters);
}

// The filters as they were typed.
std::string FilterWords(const ReportInput& input) {
  const report::Filters& filters = input.filters;
  std::vector<std::string> words;
  for (const auto& [option, text] : {std::pair("--focus", &filters.focus), std::pair("--ignore", &filters.ignore),
                                     std::pair("--hide", &filters.hide), std::pair("--exclude", &input.exclude),
                                     std::pair("--show", &filters.show)}) {
    if (!text->empty()) words.push_back(absl::StrCat(option, " ", base::Printable(*text)));
  }
  return absl::StrJoin(words, " ");
}

// NotFound: the filters leave nothing.
absl::StatusOr<std::vector<Path>> SelectPaths(const ReportInput& input, bool fold) {
  absl::StatusOr<std::vector<Path>> paths = SelectPaths(input.named, input, fold);
  const bool is_nothing = paths.ok() && paths->empty() && !input.named.paths().empty();
  if (!is_nothing) return paths;
  return absl::NotFoundError(
      absl::StrCat("no call path is left by ", FilterWords(input), "; heaptap report --top shows the functions"));
}

report::TextOptions ToOptions(const ReportInput& input, uint64_t limit) {
  const bool is_change = input.subject.is_difference && input.show.value == report::Value::kLive;
  return {.width = input.show.full_names ? 0 : input.width,
          .top = input.limit.value_or(limit),
          .smallest = input.smallest,
          .has_percentages = !is_change};
}

absl::StatusOr<std::string> Table(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  return report::TopText(input.named, report::IsOfRoots(input.show.by) ? report::RootsOf(*paths) : *paths, input.show,
                         ToOptions(input, kRows));
}

absl::StatusOr<std::string> Tree(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  return report::TreeText(report::MakeTree(input.named, *paths, input.show, Direction::kInwards), input.named.total(),
                          input.show, ToOptions(input, kRows));
}

absl::StatusOr<std::string> JsonDocument(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, false);
  if (!paths.ok()) return paths.status();
  return ToText(report::ReportJson(input.named, *paths, input.subject, input.limit.value_or(0)));
}

absl::StatusOr<std::string> Markdown(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  return report::Markdown(input.named, *paths, input.subject, input.show, ToOptions(input, kShortPaths));
}

absl::StatusOr<std::string> Svg(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  return report::FlameSvg(report::MakeTree(input.named, *paths, input.show, Direction::kInwards), input.subject,
                          input.show);
}

absl::StatusOr<std::string> Dot(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  return report::Dot(input.named, *paths, input.subject, input.show, input.limit.value_or(kNodes), input.smallest);
}

absl::StatusOr<std::string> Pdf(const ReportInput& input) {
  const absl::StatusOr<std::string> graph = Dot(input);
  return graph.ok() ? DrawWithGraphviz(*graph, "pdf") : graph;
}

absl::StatusOr<std::string> Perfetto(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, false);
  if (!paths.ok()) return paths.status();
  return report::Perfetto(input.named, *paths, input.subject, static_cast<uint64_t>(input.profile.pid));
}

absl::StatusOr<std::string> Speedscope(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, false);
  if (!paths.ok()) return paths.status();
  return report::Speedscope(input.named, *paths, input.subject);
}

absl::StatusOr<std::string> Firefox(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, false);
  if (!paths.ok()) return paths.status();
  return report::Firefox(input.named, *paths, input.subject, static_cast<uint64_t>(input.profile.pid));
}

absl::StatusOr<std::string> Jeprof(const ReportInput& input) {
  return report::JeprofText(input.named, {.value = input.show.value,
                                          .unit = input.show.unit,
                                          .show_bytes = input.show_bytes,
                                          .lines = input.show.by == report::By::kLine,
                                          .by_total = input.by_total,
                                          .focus = input.filters.focus,
                                          .ignore = input.filters.ignore,
                                          .exclude = input.exclude,
                                          .retain = input.filters.show});
}

bool IsFiltered(const ReportInput& input) {
  const report::Filters& filters = input.filters;
  return std::ranges::any_of(std::array{&filters.focus, &filters.ignore, &filters.hide, &filters.show, &input.exclude},
                             [](const std::string* text) { return !text->empty(); });
}

// Some formats show the whole profile.
absl::Status CheckUnfiltered(const ReportInput& input, absl::string_view option) {
  if (report::IsOfRoots(input.show.by)) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " writes the whole profile: leave out --by thread, size or age"));
  }
  if (IsFiltered(input)) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " writes the whole profile: leave out --focus, --ignore, --hide, --show and --exclude"));
  }
  return absl::OkStatus();
}

formats::CollapsedValue ToCollapsed(const report::Show& show) {
  const bool is_bytes = show.unit == report::Unit::kBytes;
  switch (show.value) {
    case report::Value::kAllocated:
      return is_bytes ? formats::CollapsedValue::kAllocatedBytes : formats::CollapsedValue::kAllocatedObjects;
    case report::Value::kFreed:
      return is_bytes ? formats::CollapsedValue::kFreedBytes : formats::CollapsedValue::kFreedObjects;
    case report::Value::kLive:
      break;
  }
  return is_bytes ? formats::CollapsedValue::kLiveBytes : formats::CollapsedValue::kLiveObjects;
}

absl::StatusOr<std::string> Collapsed(const ReportInput& input) {
  if (absl::Status status = CheckUnfiltered(input, "--collapsed"); !status.ok()) return status;
  return formats::Collapsed(input.profile, ToCollapsed(input.show), input.find);
}

absl::StatusOr<std::string> Pprof(const ReportInput& input) {
  if (absl::Status status = CheckUnfiltered(input, "--pprof"); !status.ok()) return status;
  return formats::Pprof(
      input.profile,
      {.program = input.subject.name, .find_source_frames = input.find, .blocks = input.profile.HasBlocks()});
}

absl::StatusOr<std::string> Symbolized(const ReportInput& input) {
  if (absl::Status status = CheckUnfiltered(input, "--jeprof"); !status.ok()) return status;
  return formats::JeprofSymbolized(input.profile, input.subject.name, input.find);
}

absl::StatusOr<std::string> Html(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, false);
  if (!paths.ok()) return paths.status();
  // Otherwise, the paths do not belong to the contexts of the profile.
  const bool has_shares = !IsFiltered(input) && !report::IsOfRoots(input.show.by) && !input.subject.is_difference;
  return web::SinglePage(input.subject.name, report::PageData(input.named, *paths, input.subject,
                                                              {.shares = has_shares ? &input.profile : nullptr,
                                                               .source_paths = input.source_paths}));
}

constexpr auto kMarked = report::CutPaths::kMarked;
constexpr View kViews[] = {
    {"--top", "show a table of functions (see --by)", Table},
    {.option = "--tree",
     .help = "show call paths as a tree, from the outermost functions",
     .make = Tree,
     .cut_paths = kMarked},
    {"--text", "show the table of jeprof --text, with the same digits", Jeprof},
    {.option = "--json", .help = "print one JSON document", .make = JsonDocument, .shows_warnings = true},
    {.option = "--markdown",
     .help = "print the short form for a ticket or an assistant",
     .make = Markdown,
     .shows_warnings = true},
    {.option = "--svg", .help = "print a flame graph as a picture", .make = Svg, .cut_paths = kMarked},
    {.option = "--html",
     .help = "write a page to look at in a browser, as one file",
     .make = Html,
     .is_binary = true,
     .unchanged = profile::Unchanged::kKeep,
     .has_shares = true,
     .cut_paths = kMarked},
    {.option = "--dot", .help = "print the call graph for graphviz", .make = Dot, .cut_paths = kMarked},
    {.option = "--pdf",
     .help = "write the call graph as a document, drawn by graphviz",
     .make = Pdf,
     .is_binary = true,
     .cut_paths = kMarked},
    {.option = "--perfetto",
     .help = "write a trace for ui.perfetto.dev",
     .make = Perfetto,
     .is_binary = true,
     .cut_paths = kMarked},
    {"--collapsed", "print a line for each call path, for flame graphs", Collapsed},
    {.option = "--speedscope", .help = "print a profile for speedscope.app", .make = Speedscope, .cut_paths = kMarked},
    {.option = "--firefox",
     .help = "print a profile for profiler.firefox.com, with native allocations",
     .make = Firefox,
     .cut_paths = kMarked},
    {.option = "--jeprof,--raw",
     .help = "print a dump with symbols, for jeprof on any machine",
     .make = Symbolized,
     .has_addresses = true},
    {.option = "--pprof",
     .help = "write a profile for go tool pprof (with -o, or to a pipe)",
     .make = Pprof,
     .is_binary = true,
     .has_addresses = true},
};

// What the user may mean by a name that no function has: functions of that name in a scope, or else functions whose
// names contain it. "": there are none.
std::string Meant(const ReportInput& input, const std::vector<Path>& paths) {
  std::vector<std::string> names;
  for (const bool is_scoped : {true, false}) {
    for (const report::Row& row : report::Rows(input.named, paths, input.show, /*by_total=*/true)) {
      const bool is_similar = is_scoped ? absl::EndsWith(row.name, absl::StrCat("::", input.callers))
                                        : absl::StrContains(row.name, input.callers);
      if (is_similar && names.size() < kMaxMeant) names.push_back(base::Printable(row.name));
    }
    if (!names.empty()) return absl::StrCat(" (did you mean ", absl::StrJoin(names, " or "), "?)");
  }
  return "";
}

}  // namespace

absl::Span<const View> ReportViews() { return kViews; }

absl::StatusOr<std::string> ShortView(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  if (report::IsOfRoots(input.show.by)) return Table(input);
  report::Show show = input.show;
  // Many programs have freed everything at their end; what they allocated is still of interest.
  const bool can_switch =
      show.value == report::Value::kLive && !input.subject.is_difference && input.subject.has_allocated;
  if (can_switch && input.named.total().live.samples == 0) show.value = report::Value::kAllocated;
  const report::TextOptions options = ToOptions(input, kShortPaths);
  if (input.past == nullptr) return report::SummaryText(input.named, *paths, input.subject, show, options);
  const absl::StatusOr<std::vector<Path>> changed = SelectPaths(*input.past, input, true);
  if (!changed.ok()) return changed.status();
  const report::Past past = {.difference = *input.past, .paths = *changed, .time = input.past_time};
  return report::SummaryText(input.named, *paths, input.subject, show, options, &past);
}

absl::StatusOr<std::string> PeekView(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  return report::PeekText(input.named, *paths, input.show, ToOptions(input, kRows), input.peek);
}

absl::StatusOr<std::string> CallersView(const ReportInput& input) {
  const absl::StatusOr<std::vector<Path>> paths = SelectPaths(input, true);
  if (!paths.ok()) return paths.status();
  const std::vector<Path> to = report::PathsTo(input.named, *paths, input.show, input.callers);
  if (to.empty()) {
    return absl::NotFoundError(absl::StrCat("no call path goes through ", base::Printable(input.callers),
                                            Meant(input, *paths), "; heaptap report --top shows the functions"));
  }
  return report::TreeText(report::MakeTree(input.named, to, input.show, Direction::kOutwards), input.named.total(),
                          input.show, ToOptions(input, kRows));
}

}  // namespace heaptap::cli
