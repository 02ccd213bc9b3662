// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/selection.h"

#include <re2/re2.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/report/readable.h"

namespace heaptap::report {
namespace {

// Matches each frame at most once, because frames are in thousands of paths.
class FrameSet {
 public:
  explicit FrameSet(const NamedProfile& profile) : profile_(profile) {}
  virtual ~FrameSet() = default;

  bool Has(FrameId id) {
    if (known_.size() <= id) known_.resize(id + 1, kUnknown);
    if (known_[id] == kUnknown) known_[id] = Matches(profile_.frame(id)) ? kInside : kOutside;
    return known_[id] == kInside;
  }

 protected:
  virtual bool Matches(const NamedFrame& frame) const = 0;
  const NamedProfile& profile_;

 private:
  enum State : char { kUnknown, kInside, kOutside };
  std::vector<State> known_;
};

class Matching : public FrameSet {
 public:
  Matching(const NamedProfile& profile, std::unique_ptr<re2::RE2> expression)
      : FrameSet(profile), expression_(std::move(expression)) {}

 private:
  bool Matches(absl::string_view text) const {
    return re2::RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *expression_);
  }
  bool Matches(const NamedFrame& frame) const override {
    const absl::string_view file = profile_.text(frame.file);
    return Matches(profile_.text(frame.function)) || (!file.empty() && Matches(absl::StrCat(file, ":", frame.line))) ||
           Matches(profile_.text(frame.library));
  }
  std::unique_ptr<re2::RE2> expression_;
};

class Uninteresting : public FrameSet {
 public:
  using FrameSet::FrameSet;

 private:
  bool Matches(const NamedFrame& frame) const override {
    const absl::string_view name = profile_.text(frame.function);
    return IsPlumbing(name, profile_.text(frame.file), frame.is_inline) || IsStart(name);
  }
};

// Null: no filter.
absl::StatusOr<std::unique_ptr<FrameSet>> Compile(const NamedProfile& profile, absl::string_view option,
                                                  const std::string& text) {
  if (text.empty()) return nullptr;
  auto expression = std::make_unique<re2::RE2>(text, re2::RE2::Quiet);
  if (!expression->ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " ", base::Printable(text), ": ", base::Printable(expression->error())));
  }
  return std::make_unique<Matching>(profile, std::move(expression));
}

}  // namespace

absl::StatusOr<std::vector<Path>> Select(const NamedProfile& profile, const Filters& filters) {
  absl::StatusOr<std::unique_ptr<FrameSet>> focus = Compile(profile, "--focus", filters.focus);
  absl::StatusOr<std::unique_ptr<FrameSet>> ignore = Compile(profile, "--ignore", filters.ignore);
  absl::StatusOr<std::unique_ptr<FrameSet>> hide = Compile(profile, "--hide", filters.hide);
  absl::StatusOr<std::unique_ptr<FrameSet>> show = Compile(profile, "--show", filters.show);
  for (const auto* set : {&focus, &ignore, &hide, &show}) {
    if (!set->ok()) return set->status();
  }
  Uninteresting uninteresting(profile);
  const auto is_kept = [&](FrameId frame) {
    return (*hide == nullptr || !(*hide)->Has(frame)) && (*show == nullptr || (*show)->Has(frame));
  };
  std::vector<Path> paths;
  for (const Path& path : profile.paths()) {
    const auto has = [&path](FrameSet& set) {
      return std::ranges::any_of(path.frames, [&](FrameId frame) { return set.Has(frame); });
    };
    if ((*focus != nullptr && !has(**focus)) || (*ignore != nullptr && has(**ignore))) continue;
    Path kept = {.truncated = path.truncated, .measures = path.measures};
    std::ranges::copy_if(path.frames, std::back_inserter(kept.frames), is_kept);
    if (kept.frames.empty() && !path.frames.empty()) continue;
    if (filters.fold) {
      std::vector<FrameId> interesting;
      std::ranges::copy_if(kept.frames, std::back_inserter(interesting),
                           [&](FrameId frame) { return !uninteresting.Has(frame); });
      if (!interesting.empty()) kept.frames = std::move(interesting);
    }
    paths.push_back(std::move(kept));
  }
  return paths;
}

}  // namespace heaptap::report
