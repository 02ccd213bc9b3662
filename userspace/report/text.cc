// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/printable_text.h"
#include "userspace/report/human.h"

namespace heaptap::report {
namespace {

constexpr absl::string_view kEllipsis = "...";
// A narrower name could not be recognised.
constexpr size_t kNarrowest = 20;

}  // namespace

std::string Figure(double value, Unit unit) {
  return unit == Unit::kBytes ? HumanBytes(value) : absl::StrFormat("%.0f", value);
}

std::string Percent(double part, double total) {
  return total == 0 ? kUnknown : absl::StrFormat("%.1f%%", 100 * part / total);
}

bool IsNoise(const Measure& measure) { return measure.variance > 0 && std::fabs(measure.bytes) < 2 * measure.Error(); }

std::string Error(const Measure& measure, Unit unit) {
  if (unit == Unit::kObjects) return "";
  return absl::StrCat(HumanBytes(measure.Error()), IsNoise(measure) ? kNoiseMark : "");
}

std::string NoiseNote(bool has_noise) {
  return has_noise ? absl::StrCat(kNoiseMark, " less than twice its standard error: may be the noise of sampling\n")
                   : "";
}

size_t WidthAfter(size_t used, size_t width) { return width == 0 ? 0 : std::max(width, used + kNarrowest) - used; }

std::string Fit(absl::string_view text, size_t width) {
  if (width == 0 || base::CountCharacters(text) <= width) return std::string(text);
  const size_t kept = width - kEllipsis.size();
  // The end of the text, with the file and the line, says more than the middle.
  const size_t front = kept / 2;
  return absl::StrCat(base::FirstCharacters(text, front), kEllipsis, base::LastCharacters(text, kept - front));
}

}  // namespace heaptap::report
