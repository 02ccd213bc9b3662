// SPDX-License-Identifier: Apache-2.0
//
// The common parts of the text views of `heaptap report`: columns of figures, marks for noise, lines that fit the
// terminal. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_TEXT_H_
#define HEAPTAP_USERSPACE_REPORT_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/report/rows.h"

namespace heaptap::report {

struct TextOptions {
  size_t width = 0;       // of a line, in letters; 0: no bound
  size_t top = 20;        // rows or paths that are shown; 0: all
  double smallest = 0.5;  // percent of the total below which a tree is cut
  // false: growth and shrinkage cancel out in the total, so a share of it says nothing.
  bool has_percentages = true;
};

// A figure of this view: "1.5M" bytes, or objects.
std::string Figure(double value, Unit unit);
// "48.8%"; "-" if there is no total.
std::string Percent(double part, double total);
// The standard error of bytes, with kNoiseMark if the figure is less than twice as large. "" for objects, whose error
// is not known.
std::string Error(const Measure& measure, Unit unit);

inline constexpr char kNoiseMark[] = "~";
// Whether the bytes are less than twice their standard error.
bool IsNoise(const Measure& measure);
// The line that explains kNoiseMark; "" if the text has no such mark.
std::string NoiseNote(bool has_noise);

// The text, cut to the width with an ellipsis in its middle, where long names differ least.
std::string Fit(absl::string_view text, size_t width);
// The letters that are left of a line of `width` letters after `used` of them, but never too few for a name; 0: no
// bound.
size_t WidthAfter(size_t used, size_t width);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_TEXT_H_
