// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/summary_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/report/human.h"
#include "userspace/report/readable.h"

namespace heaptap::report {
namespace {

// How many of a path's innermost and outermost frames are shown.
constexpr size_t kInnermost = 6;
constexpr size_t kOutermost = 2;
constexpr size_t kIndentation = 8;
// How many of the paths that grew most are shown, besides those that hold most.
constexpr size_t kGrown = 3;
// A difference that rests on this few samples may be chance.
constexpr uint64_t kFewSamples = 2;

// Shares of the resident memory. If live memory is below the first, the parts of the rest that are above the second are
// shown.
constexpr double kSmallShare = 0.5;
constexpr double kLargePart = 0.1;

// For a profile that begins late: readers would take blocks that only replace older ones for a leak.
constexpr char kNotGrowth[] =
    "\nThis is not growth: blocks that replace older ones are counted, but the frees of the older ones are not known.\n"
    "To see growth, compare two dumps of one recording (SIGUSR1 to heaptap attach writes one) with heaptap diff, or\n"
    "two moments of the history of a daemon with heaptap history.\n";

std::string Signed(double value, Unit unit, bool is_difference) {
  return absl::StrCat(is_difference && value > 0 ? "+" : "", Figure(value, unit));
}

std::string WithError(const Measure& measure, bool is_difference) {
  std::string text = Signed(measure.bytes, Unit::kBytes, is_difference);
  if (measure.variance > 0) absl::StrAppend(&text, " +- ", HumanBytes(measure.Error()));
  return text;
}

// "1 object", "2 objects".
std::string Counted(double count, absl::string_view noun) {
  const std::string number = absl::StrFormat("%.0f", count);
  return absl::StrCat(number, " ", noun, number == "1" ? "" : "s");
}

std::string SignedObjects(double count) { return absl::StrCat(count > 0 ? "+" : "", Counted(count, "object")); }

// Says how many samples a difference rests on, if they are few.
std::string Caution(const Measure& measure) {
  if (measure.samples > kFewSamples || measure.variance == 0) return "";
  return measure.samples == 1 ? ": rests on one sample" : absl::StrCat(": rests on ", measure.samples, " samples");
}

class SummaryWriter {
 public:
  SummaryWriter(const NamedProfile& profile, const Subject& subject, const Show& show, const TextOptions& options)
      : profile_(profile), subject_(subject), show_(show), options_(options) {}

  std::string Write(absl::Span<const Path> paths, const Past* past) && {
    WriteTotals();
    WritePaths(paths, subject_.is_difference
                          ? "what grew most"
                          : absl::StrCat(What(), subject_.begins_late ? " of what was allocated since then" : ""));
    if (past != nullptr) WritePast(*past);
    for (const std::string& warning : subject_.warnings) absl::StrAppend(&text_, "\nmissing: ", warning, "\n");
    if (subject_.begins_late) text_.append(kNotGrowth);
    absl::StrAppend(&text_, has_noise_ ? "\n" : "", NoiseNote(has_noise_));
    if (!subject_.next_commands.empty()) text_.append("\nnext:\n");
    for (const std::string& command : subject_.next_commands) absl::StrAppend(&text_, "  ", command, "\n");
    return std::move(text_);
  }

 private:
  void WritePaths(absl::Span<const Path> paths, absl::string_view title) {
    // Lines tell the places of a path apart.
    const Show by_line = {.by = By::kLine, .value = show_.value, .unit = show_.unit, .full_names = show_.full_names};
    std::vector<Path> merged = MergePaths(profile_, {paths.begin(), paths.end()}, by_line);
    const auto is_nothing = [&](const Path& path) { return ValueOf(path) == 0; };
    const auto used = static_cast<size_t>(std::ranges::find_if(merged, is_nothing) - merged.begin());
    merged.resize(used);
    Sort(merged);
    const size_t shown = options_.top == 0 ? used : std::min(options_.top, used);
    if (shown > 0) {
      absl::StrAppend(&text_, "\n", title, shown < used ? absl::StrCat(", ", shown, " of ", used, " call paths") : "",
                      ":\n");
    }
    for (size_t i = 0; i < shown; i++) WritePath(i + 1, merged[i], by_line);
  }

  void WritePast(const Past& past) {
    std::vector<Path> grown;
    for (const Path& path : past.paths) {
      if (path.measures.live.bytes > 0) grown.push_back(path);
    }
    const std::string time = HumanDuration(past.time);
    if (grown.empty()) {
      absl::StrAppend(&text_, "\nnothing grew in the last ", time, "\n");
      return;
    }
    const TextOptions options = {.width = options_.width, .top = kGrown};
    SummaryWriter writer(past.difference, {.is_difference = true}, {.full_names = show_.full_names}, options);
    writer.WritePaths(grown, absl::StrCat("what grew most in the last ", time));
    text_ += writer.text_;
    has_noise_ |= writer.has_noise_;
  }

  double ValueOf(const Path& path) const { return Of(Of(path.measures, show_.value), show_.unit); }

  const char* What() const {
    switch (show_.value) {
      case Value::kAllocated:
        return "who allocated most";
      case Value::kFreed:
        return "whose memory was freed most";
      case Value::kLive:
        break;
    }
    return "who holds most";
  }

  // Paths that grew come first, then paths that shrank.
  void Sort(std::vector<Path>& paths) const {
    if (!subject_.is_difference) return;
    std::stable_partition(paths.begin(), paths.end(), [this](const Path& path) { return ValueOf(path) > 0; });
  }

  void WriteChange() {
    const Measure& total = profile_.total().live;
    absl::StrAppend(&text_, subject_.name, "\n");
    AddLastWords(
        absl::StrCat("  live       ", WithError(total, true), " in ", SignedObjects(total.objects), ": ",
                     HumanBytes(subject_.before.bytes), " in ", Counted(subject_.before.objects, "object"), " before, ",
                     HumanBytes(subject_.after.bytes), " in ", Counted(subject_.after.objects, "object"), " after"),
        absl::StrCat("(", Sampling(subject_), ")"));
  }

  // Adds the last words of a line, on a line of their own if they do not fit.
  void AddLastWords(std::string line, absl::string_view words) {
    const bool fits = options_.width == 0 || line.size() + 1 + words.size() <= options_.width;
    absl::StrAppend(&text_, line, fits ? " " : "\n             ", words, "\n");
  }

  // If live memory is the smaller part of the resident memory, says what the larger part is.
  void WriteOtherMemory(double live) {
    if (subject_.begins_late || live >= kSmallShare * *subject_.resident_bytes) return;
    for (const profile::CoveragePart& part : subject_.coverage) {
      const auto bytes = static_cast<double>(part.bytes);
      if (absl::string_view(part.name) == profile::kLivePart || bytes < kLargePart * *subject_.resident_bytes) continue;
      absl::StrAppend(&text_, "             ", part.name, " ", HumanBytes(bytes), ", ",
                      Percent(bytes, *subject_.resident_bytes), ": ", part.note, "\n");
    }
  }

  void WriteTotals() {
    if (subject_.is_difference) return WriteChange();
    const Measures& total = profile_.total();
    absl::StrAppend(&text_, subject_.name, "\n");
    AddLastWords(absl::StrCat("  live       ", WithError(total.live, subject_.is_difference), " in ",
                              Counted(total.live.objects, "object"), ", ",
                              Counted(static_cast<double>(total.live.samples), "sample")),
                 absl::StrCat("(", Sampling(subject_), ")"));
    if (total.allocated.bytes > 0) {
      absl::StrAppend(&text_, "  allocated  ", WithError(total.allocated, false), " in ",
                      Counted(total.allocated.objects, "object"), ", freed or not\n");
    }
    if (subject_.resident_bytes.has_value()) {
      absl::StrAppend(&text_, "  resident   ", HumanBytes(*subject_.resident_bytes));
      // If the profile begins late, an unknown part of the resident memory is older.
      if (!subject_.begins_late) {
        absl::StrAppend(&text_, "; live is ", Percent(total.live.bytes, *subject_.resident_bytes), " of that");
      }
      text_.append("\n");
      WriteOtherMemory(total.live.bytes);
    }
    if (subject_.begins_late) {
      const std::string ago =
          subject_.recorded_for.has_value() ? absl::StrCat(", ", HumanDuration(*subject_.recorded_for), " ago") : "";
      absl::StrAppend(&text_, "  since      the recording began", ago, "; what is older is not known\n");
    }
  }

  void WritePath(size_t number, const Path& path, const Show& by_line) {
    const Measure& measure = Of(path.measures, show_.value);
    has_noise_ |= IsNoise(measure);
    const Measure& total = Of(profile_.total(), show_.value);
    const std::string samples = Counted(static_cast<double>(measure.samples), "sample");
    const char* const mark = IsNoise(measure) ? kNoiseMark : "";
    if (subject_.is_difference) {
      absl::StrAppendFormat(&text_, "%4d. %s, %s, %s changed%s%s\n", number, WithError(measure, true),
                            SignedObjects(measure.objects), samples, mark, Caution(measure));
    } else {
      absl::StrAppendFormat(&text_, "%4d. %s, %s, %s, %s%s\n", number, WithError(measure, false),
                            Percent(Of(measure, show_.unit), Of(total, show_.unit)), Counted(measure.objects, "object"),
                            samples, mark);
    }
    if (path.frames.empty()) AddLine(NameOfUnknown());
    const size_t frames = path.frames.size();
    const bool is_cut = frames > kInnermost + kOutermost + 1;
    // Without a function of the user's own, the path would say nothing.
    const size_t own =
        std::ranges::find_if(path.frames, [this](FrameId id) { return IsOwn(id); }) - path.frames.begin();
    size_t left_out = 0;
    for (size_t i = 0; i < frames; i++) {
      if (is_cut && i >= kInnermost && i + kOutermost < frames && i != own) {
        left_out++;
        continue;
      }
      if (left_out > 0) AddLine(absl::StrCat("... ", std::exchange(left_out, 0), " more"));
      const NamedFrame& frame = profile_.frame(path.frames[i]);
      AddLine(NameOf(profile_, frame, by_line), frame.is_inline ? " (inlined)" : "");
    }
    if (path.truncated) AddLine("... outer frames are missing");
  }

  bool IsOwn(FrameId id) const {
    const NamedFrame& frame = profile_.frame(id);
    const absl::string_view name = profile_.text(frame.function);
    return frame.has_symbol && !IsPlumbing(name, profile_.text(frame.file), frame.is_inline) && !IsStart(name);
  }

  void AddLine(absl::string_view name, absl::string_view mark = "") {
    absl::StrAppend(&text_, std::string(kIndentation, ' '),
                    Fit(name, WidthAfter(kIndentation + mark.size(), options_.width)), mark, "\n");
  }

  const NamedProfile& profile_;
  const Subject subject_;
  const Show show_;
  const TextOptions options_;
  bool has_noise_ = false;
  std::string text_;
};

}  // namespace

std::string Sampling(const Subject& subject) {
  const std::string last =
      subject.period > 1 ? absl::StrCat("a sample every ", HumanBytes(static_cast<double>(subject.period)), " bytes")
      : subject.warnings.empty() ? "every allocation is recorded"
                                 : "every allocation is a sample";
  return absl::StrCat(subject.several_periods ? "several intervals, at last " : "", last);
}

std::string SummaryText(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject,
                        const Show& show, const TextOptions& options, const Past* past) {
  return SummaryWriter(profile, subject, show, options).Write(paths, past);
}

}  // namespace heaptap::report
