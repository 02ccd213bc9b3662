// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/trend.h"

#include <algorithm>
#include <iterator>

#include "userspace/base/clock.h"

namespace heaptap::report {
namespace {

// From empty to full.
constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kLetters[] = {"_", ".", "-", "=", "+", "*", "%", "#"};
constexpr size_t kHeights = std::size(kBlocks);
// The widest picture.
constexpr size_t kMostPoints = 120;

}  // namespace

void Trend::Add(base::Instant now, double live_bytes) {
  points_.emplace_back(now, live_bytes);
  if (points_.size() > kMostPoints) points_.pop_front();
}

std::string Trend::Picture(size_t width, bool is_utf8) const {
  const size_t shown = std::min(width, points_.size());
  double most = 1;
  for (size_t i = points_.size() - shown; i < points_.size(); i++) most = std::max(most, points_[i].second);
  std::string picture;
  for (size_t i = points_.size() - shown; i < points_.size(); i++) {
    const double share = std::clamp(points_[i].second / most, 0.0, 1.0);
    const auto height = std::min(static_cast<size_t>(share * kHeights), kHeights - 1);
    picture.append(is_utf8 ? kBlocks[height] : kLetters[height]);
  }
  return picture;
}

}  // namespace heaptap::report
