// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/jeprof_text.h"

#include <re2/re2.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/printable_text.h"
#include "userspace/report/readable.h"

namespace heaptap::report {
namespace {

// Functions of allocators (RemoveUninterestingFrames): their callees are not shown.
constexpr absl::string_view kAllocators[] = {"calloc",
                                             "cfree",
                                             "malloc",
                                             "newImpl",
                                             "void* newImpl",
                                             "free",
                                             "memalign",
                                             "posix_memalign",
                                             "aligned_alloc",
                                             "pvalloc",
                                             "valloc",
                                             "realloc",
                                             "mallocx",
                                             "rallocx",
                                             "xallocx",
                                             "dallocx",
                                             "sdallocx",
                                             "sdallocx_noflags",
                                             "tc_calloc",
                                             "tc_cfree",
                                             "tc_malloc",
                                             "tc_free",
                                             "tc_memalign",
                                             "tc_posix_memalign",
                                             "tc_pvalloc",
                                             "tc_valloc",
                                             "tc_realloc",
                                             "tc_new",
                                             "tc_delete",
                                             "tc_newarray",
                                             "tc_deletearray",
                                             "tc_new_nothrow",
                                             "tc_newarray_nothrow",
                                             "do_malloc",
                                             "::do_malloc",
                                             "::do_malloc_or_cpp_alloc",
                                             "DoSampledAllocation",
                                             "simple_alloc::allocate",
                                             "__malloc_alloc_template::allocate",
                                             "__builtin_delete",
                                             "__builtin_new",
                                             "__builtin_vec_delete",
                                             "__builtin_vec_new",
                                             "operator new",
                                             "operator new[]"};

bool IsAllocator(absl::string_view name) {
  if (std::ranges::find(kAllocators, name) != std::end(kAllocators)) return true;
  if (absl::StartsWith(name, "_") && std::ranges::find(kAllocators, name.substr(1)) != std::end(kAllocators)) {
    return true;
  }
  // jeprof takes the nearest dynamic symbol for such a frame, which is an allocation function in most cases.
  return absl::StrContains(name, "TCMalloc") || absl::StartsWith(name, "tcmalloc::") || IsInAllocator(name);
}

// A frame as jeprof names it. A frame is a function or a function that is inlined there; the frames of one address end
// with one that is not inlined.
struct Name {
  std::string function;  // short
  std::string shown;     // in the table
  bool is_inline;
};

// The names of frames, each made once.
class Names {
 public:
  Names(const NamedProfile& profile, bool lines) : profile_(profile), lines_(lines) {}

  const Name& At(FrameId id) {
    if (names_.size() <= id) names_.resize(id + 1);
    if (!names_[id].has_value()) names_[id] = Make(profile_.frame(id));
    return *names_[id];
  }
  std::string Place(FrameId id) const { return PlaceOf(profile_.frame(id)); }

 private:
  // The place as addr2line prints it.
  std::string PlaceOf(const NamedFrame& frame) const {
    const absl::string_view file = profile_.text(frame.file);
    return absl::StrCat(file.empty() ? "??" : file, ":", frame.line == 0 ? "?" : absl::StrCat(frame.line));
  }
  Name Make(const NamedFrame& frame) const {
    const absl::string_view function = profile_.text(frame.function);
    Name name = {.function = frame.has_symbol ? JeprofName(function) : std::string(function),
                 .shown = {},
                 .is_inline = frame.is_inline};
    name.shown = absl::StrCat(name.function, name.is_inline ? " (inline)" : "");
    if (lines_ && frame.has_symbol) absl::StrAppend(&name.shown, " ", PlaceOf(frame));
    return name;
  }

  const NamedProfile& profile_;
  const bool lines_;
  std::vector<std::optional<Name>> names_;
};

class Expression {
 public:
  // `option`: for the message.
  Expression(absl::string_view option, const std::string& text) : option_(option), text_(text) {
    if (!text.empty()) compiled_ = std::make_unique<re2::RE2>(text, re2::RE2::Quiet);
  }
  bool is_given() const { return compiled_ != nullptr; }
  absl::Status status() const {
    if (compiled_ == nullptr || compiled_->ok()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(option_, " ", base::Printable(text_), ": ", base::Printable(compiled_->error())));
  }
  bool Matches(absl::string_view text) const {
    return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *compiled_);
  }

 private:
  const absl::string_view option_;
  const std::string text_;
  std::unique_ptr<re2::RE2> compiled_;  // null: no filter
};

std::string Unparse(double number, const JeprofOptions& options) {
  if (options.unit == Unit::kObjects || options.show_bytes) return absl::StrFormat("%d", static_cast<int64_t>(number));
  constexpr double kMegabyte = 1048576;
  return absl::StrFormat("%.1f", number / kMegabyte);
}

std::string JeprofPercent(double number, double total) {
  if (total != 0) return absl::StrFormat("%.1f%%", number * 100 / total);
  if (number == 0) return "nan";
  return number > 0 ? "+inf" : "-inf";
}

const char* Units(const JeprofOptions& options) {
  if (options.unit == Unit::kObjects) return "objects";
  return options.show_bytes ? "B" : "MB";
}

struct Sums {
  double self = 0;
  double total = 0;
};

class FunctionTable {
 public:
  FunctionTable(const NamedProfile& profile, const JeprofOptions& options)
      : options_(options),
        names_(profile, options.lines),
        focus_("--focus", options.focus),
        ignore_("--ignore", options.ignore),
        exclude_("--exclude", options.exclude),
        retain_("--retain", options.retain) {}

  absl::Status status() const {
    for (const Expression* expression : {&focus_, &ignore_, &exclude_, &retain_}) {
      if (!expression->status().ok()) return expression->status();
    }
    return absl::OkStatus();
  }

  void Add(const Path& path) {
    const double value = Of(Of(path.measures, options_.value), options_.unit);
    total_ += value;
    const std::vector<FrameId> frames = Interesting(path.frames);
    if (frames.empty() && !path.frames.empty()) return;
    if (focus_.is_given() && !HasMatch(frames, focus_)) return;
    if (ignore_.is_given() && HasMatch(frames, ignore_)) return;
    absl::flat_hash_set<absl::string_view> seen;
    const auto add = [&](const std::string& shown) {
      if (!seen.insert(shown).second) return;
      Sums& sums = sums_[shown];
      if (seen.size() == 1) sums.self += value;
      sums.total += value;
    };
    for (const FrameId frame : frames) add(names_.At(frame).shown);
    if (path.frames.empty()) add(NameOfUnknown());
  }

  std::string Text() const {
    std::string text;
    if (total_ != 0) absl::StrAppend(&text, "Total: ", Unparse(total_, options_), " ", Units(options_), "\n");
    std::vector<std::pair<std::string, Sums>> rows(sums_.begin(), sums_.end());
    std::ranges::sort(rows, [this](const auto& a, const auto& b) {
      const double of_a = options_.by_total ? a.second.total : a.second.self;
      const double of_b = options_.by_total ? b.second.total : b.second.self;
      return of_a != of_b ? of_a > of_b : a.first < b.first;
    });
    double self_total = 0;
    for (const auto& [name, sums] : rows) self_total += sums.self;
    double running = 0;
    for (const auto& [name, sums] : rows) {
      running += sums.self;
      if (sums.self == 0 && sums.total == 0) continue;
      absl::StrAppendFormat(&text, "%8s %6s %6s %8s %6s %s\n", Unparse(sums.self, options_),
                            JeprofPercent(sums.self, self_total), JeprofPercent(running, self_total),
                            Unparse(sums.total, options_), JeprofPercent(sums.total, self_total), name);
    }
    return text;
  }

 private:
  // The frames outside of allocators that the expressions keep. They are kept or left out by address.
  std::vector<FrameId> Interesting(const std::vector<FrameId>& frames) {
    std::vector<FrameId> kept;
    for (size_t begin = 0; begin < frames.size();) {
      size_t end = begin;
      while (end + 1 < frames.size() && names_.At(frames[end]).is_inline) end++;
      const std::string& function = names_.At(frames[end]).function;
      if (IsAllocator(function)) {
        kept.clear();
      } else if ((!retain_.is_given() || retain_.Matches(function)) &&
                 !(exclude_.is_given() && exclude_.Matches(function))) {
        kept.insert(kept.end(), frames.begin() + begin, frames.begin() + end + 1);
      }
      begin = end + 1;
    }
    return kept;
  }

  bool HasMatch(const std::vector<FrameId>& frames, const Expression& expression) {
    return std::ranges::any_of(frames, [&](FrameId frame) {
      return expression.Matches(names_.At(frame).function) || expression.Matches(names_.Place(frame));
    });
  }

  const JeprofOptions& options_;
  Names names_;
  const Expression focus_;
  const Expression ignore_;
  const Expression exclude_;
  const Expression retain_;
  double total_ = 0;
  absl::flat_hash_map<std::string, Sums> sums_;
};

}  // namespace

std::string JeprofName(absl::string_view name) {
  // Never destroyed: other threads may use them until the end.
  static const auto& parameters = *new re2::RE2(R"(\([^()]*\)(\s*const)?)");
  static const auto& template_arguments = *new re2::RE2("<[^<>]*>");
  static const auto& type = *new re2::RE2(R"(^.*\s+(\w+::))");
  std::string text(name);
  while (re2::RE2::GlobalReplace(&text, parameters, "") > 0) {
  }
  while (re2::RE2::GlobalReplace(&text, template_arguments, "") > 0) {
  }
  re2::RE2::Replace(&text, type, R"(\1)");
  return text;
}

absl::StatusOr<std::string> JeprofText(const NamedProfile& profile, const JeprofOptions& options) {
  FunctionTable table(profile, options);
  if (absl::Status status = table.status(); !status.ok()) return status;
  for (const Path& path : profile.paths()) table.Add(path);
  return table.Text();
}

}  // namespace heaptap::report
