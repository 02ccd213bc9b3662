// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/markdown.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "userspace/report/human.h"

namespace heaptap::report {
namespace {

// The longest run of backquotes in a text.
size_t LongestFence(absl::string_view text) {
  size_t longest = 0;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

std::string WithError(const Measure& measure) {
  return measure.variance > 0 ? absl::StrCat(HumanBytes(measure.bytes), " ± ", HumanBytes(measure.Error()))
                              : HumanBytes(measure.bytes);
}

// A measure of a difference, with its sign.
std::string Change(const Measure& measure) { return absl::StrCat(measure.bytes > 0 ? "+" : "", WithError(measure)); }

std::string PathCell(const NamedProfile& profile, const Path& path, const Show& by_line) {
  if (path.frames.empty()) return NameOfUnknown();
  std::string cell;
  for (size_t i = 0; i < std::min(path.frames.size(), kMarkdownFrames); i++) {
    absl::StrAppend(&cell, i == 0 ? "" : " ← ", CodeSpan(NameOf(profile, profile.frame(path.frames[i]), by_line)));
  }
  if (path.frames.size() > kMarkdownFrames)
    absl::StrAppend(&cell, " ← ", path.frames.size() - kMarkdownFrames, " more");
  return cell;
}

}  // namespace

std::string CodeSpan(absl::string_view text) {
  // A span ends at a run of backquotes that is as long as the run at its beginning. A bar ends a cell, even in a span.
  const std::string fence(LongestFence(text) + 1, '`');
  const char* const blank = absl::StartsWith(text, "`") || absl::EndsWith(text, "`") ? " " : "";
  return absl::StrCat(fence, blank, absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}}), blank, fence);
}

std::string Markdown(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject,
                     const Show& show, const TextOptions& options) {
  const Measures& total = profile.total();
  std::string text = absl::StrCat("## Heap of ", CodeSpan(subject.name), "\n\n");
  if (subject.is_difference) {
    absl::StrAppendFormat(&text, "- live: %s in %+.0f objects (%d samples changed, %s)\n", Change(total.live),
                          total.live.objects, total.live.samples, Sampling(subject));
    absl::StrAppendFormat(&text, "- before: %s in %.0f objects, after: %s in %.0f objects\n",
                          HumanBytes(subject.before.bytes), subject.before.objects, HumanBytes(subject.after.bytes),
                          subject.after.objects);
  } else {
    absl::StrAppendFormat(&text, "- live: %s in %.0f objects (%d samples, %s)\n", WithError(total.live),
                          total.live.objects, total.live.samples, Sampling(subject));
    if (subject.has_allocated) {
      absl::StrAppendFormat(&text, "- allocated, freed or not: %s in %.0f objects\n", WithError(total.allocated),
                            total.allocated.objects);
    }
  }
  if (subject.resident_bytes.has_value()) {
    absl::StrAppend(&text, "- resident: ", HumanBytes(*subject.resident_bytes), "\n");
  }
  for (const std::string& warning : subject.warnings) absl::StrAppend(&text, "- missing: ", CodeSpan(warning), "\n");

  const Show by_line = {.by = By::kLine, .value = show.value, .unit = show.unit, .full_names = show.full_names};
  const std::vector<Path> merged = MergePaths(profile, {paths.begin(), paths.end()}, by_line);
  const size_t shown = options.top == 0 ? merged.size() : std::min(options.top, merged.size());
  absl::StrAppend(&text, "\n| ", WordFor(show.value),
                  !options.has_percentages ? " | objects | samples changed | call path |\n|---:|---:|---:|---|\n"
                                           : " | share | objects | samples | call path |\n|---:|---:|---:|---:|---|\n");
  bool has_noise = false;
  const double all = Of(Of(total, show.value), show.unit);
  for (const Path& path : absl::MakeSpan(merged).subspan(0, shown)) {
    const Measure& measure = Of(path.measures, show.value);
    const std::string mark = IsNoise(measure) ? absl::StrCat(" ", kNoiseMark) : "";
    has_noise |= IsNoise(measure);
    const std::string cell = PathCell(profile, path, by_line);
    if (!options.has_percentages) {
      absl::StrAppendFormat(&text, "| %s%s | %+.0f | %d | %s |\n", Change(measure), mark, measure.objects,
                            measure.samples, cell);
    } else {
      absl::StrAppendFormat(&text, "| %s%s | %s | %.0f | %d | %s |\n", WithError(measure), mark,
                            Percent(Of(measure, show.unit), all), measure.objects, measure.samples, cell);
    }
  }
  if (has_noise) absl::StrAppend(&text, "\n", NoiseNote(has_noise));
  if (shown < merged.size()) absl::StrAppend(&text, "\n", merged.size() - shown, " more call paths.\n");
  if (!subject.next_commands.empty()) text.append("\nNext:\n\n");
  for (const std::string& command : subject.next_commands) absl::StrAppend(&text, "    ", command, "\n");
  return text;
}

}  // namespace heaptap::report
