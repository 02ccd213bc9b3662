// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/peek_text.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/printable_text.h"

namespace heaptap::report {
namespace {

// The width of the columns before the name, and of the lines between blocks.
constexpr size_t kPeekFiguresWidth = 58;
constexpr size_t kPeekLineWidth = 78;

enum class Side { kCaller, kCallee };

struct Peeked {
  Measure self = {};
  Measure total = {};
  absl::flat_hash_map<size_t, Measure> callers = {};  // by the number of the name
  absl::flat_hash_map<size_t, Measure> callees = {};
};

class Peeker {
 public:
  Peeker(const NamedProfile& profile, const Show& show, const re2::RE2& expression)
      : profile_(profile), show_(show), expression_(expression), names_(profile, show) {}

  void Add(const Path& path) {
    const Measure& measure = Of(path.measures, show_.value);
    std::set<size_t> seen;
    std::set<std::tuple<size_t, size_t, Side>> seen_calls;
    for (size_t i = 0; i < path.frames.size(); i++) {
      const size_t name = names_.At(path.frames[i]);
      if (!Matches(name)) continue;
      Peeked& peeked = found_[name];
      if (i == 0) peeked.self += measure;
      if (seen.insert(name).second) peeked.total += measure;
      const auto add_call = [&](size_t at, Side side) {
        const size_t other = names_.At(path.frames[at]);
        if (!seen_calls.emplace(name, other, side).second) return;
        (side == Side::kCaller ? peeked.callers : peeked.callees)[other] += measure;
      };
      if (i + 1 < path.frames.size()) add_call(i + 1, Side::kCaller);
      if (i > 0) add_call(i - 1, Side::kCallee);
    }
  }

  bool IsEmpty() const { return found_.empty(); }

  std::string Text(const TextOptions& options) const {
    std::vector<size_t> order;
    order.reserve(found_.size());
    for (const auto& [name, peeked] : found_) order.push_back(name);
    SortBySize(order, [this](size_t name) -> const Measure& { return found_.at(name).total; });
    std::string text = absl::StrFormat("%9s %7s %9s %7s %9s %7s  %s\n", "SELF", "SHARE", "TOTAL", "SHARE", "CALLS",
                                       "SHARE", "CALLERS, FUNCTION, CALLEES");
    const size_t shown = options.top == 0 ? order.size() : std::min(options.top, order.size());
    order.resize(shown);
    for (const size_t name : order) AppendBlock(name, options, text);
    if (shown < found_.size()) absl::StrAppend(&text, "and ", found_.size() - shown, " more (see --limit)\n");
    return text;
  }

 private:
  bool Matches(size_t name) {
    if (matches_.size() <= name) matches_.resize(name + 1, kNotTried);
    if (matches_[name] == kNotTried)
      matches_[name] = re2::RE2::PartialMatch(names_.Name(name), expression_) ? kYes : kNo;
    return matches_[name] == kYes;
  }

  template <typename Measured>
  void SortBySize(std::vector<size_t>& names, Measured measured) const {
    std::ranges::sort(names, [&](size_t a, size_t b) {
      const double of_a = std::fabs(Of(measured(a), show_.unit));
      const double of_b = std::fabs(Of(measured(b), show_.unit));
      return of_a != of_b ? of_a > of_b : names_.Name(a) < names_.Name(b);
    });
  }

  void AppendBlock(size_t name, const TextOptions& options, std::string& text) const {
    const Peeked& peeked = found_.at(name);
    const double all = Of(Of(profile_.total(), show_.value), show_.unit);
    absl::StrAppend(
        &text, std::string(options.width == 0 ? kPeekLineWidth : std::min(options.width, kPeekLineWidth), '-'), "\n");
    AppendCalls(peeked.callers, peeked, "callers", options, text);
    const double self = Of(peeked.self, show_.unit);
    const double total = Of(peeked.total, show_.unit);
    absl::StrAppendFormat(&text, "%9s %7s %9s %7s %17s  %s\n", Figure(self, show_.unit), Percent(self, all),
                          Figure(total, show_.unit), Percent(total, all), "",
                          Fit(names_.Name(name), WidthAfter(kPeekFiguresWidth, options.width)));
    AppendCalls(peeked.callees, peeked, "callees", options, text);
  }

  void AppendCalls(const absl::flat_hash_map<size_t, Measure>& calls, const Peeked& peeked, absl::string_view what,
                   const TextOptions& options, std::string& text) const {
    const double total = Of(peeked.total, show_.unit);
    std::vector<size_t> order;
    for (const auto& [name, measure] : calls) {
      if (std::fabs(Of(measure, show_.unit)) >= std::fabs(total) * options.smallest / 100) order.push_back(name);
    }
    SortBySize(order, [&](size_t name) -> const Measure& { return calls.at(name); });
    for (const size_t name : order) {
      const double value = Of(calls.at(name), show_.unit);
      absl::StrAppendFormat(&text, "%36s%9s %7s    %s\n", "", Figure(value, show_.unit), Percent(value, total),
                            Fit(names_.Name(name), WidthAfter(kPeekFiguresWidth, options.width)));
    }
    if (order.size() == calls.size()) return;
    absl::StrAppendFormat(&text, "%36s%d %s below %.1f%% are not shown (see --smallest)\n", "",
                          calls.size() - order.size(), what, options.smallest);
  }

  enum Tried : char { kNotTried, kYes, kNo };

  const NamedProfile& profile_;
  const Show& show_;
  const re2::RE2& expression_;
  RowNumbers names_;
  std::vector<Tried> matches_;  // by the number of the name
  absl::flat_hash_map<size_t, Peeked> found_;
};

}  // namespace

absl::StatusOr<std::string> PeekText(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show,
                                     const TextOptions& options, const std::string& expression) {
  const re2::RE2 compiled(expression, re2::RE2::Quiet);
  if (!compiled.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--peek ", base::Printable(expression), ": ", base::Printable(compiled.error())));
  }
  Peeker peeker(profile, show, compiled);
  for (const Path& path : paths) peeker.Add(path);
  if (peeker.IsEmpty()) {
    return absl::NotFoundError(absl::StrCat("no function matches ", base::Printable(expression),
                                            "; heaptap report --top shows the functions"));
  }
  return peeker.Text(options);
}

}  // namespace heaptap::report
