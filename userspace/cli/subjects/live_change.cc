// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/live_change.h"

#include <utility>

#include "userspace/profile/difference.h"
#include "userspace/report/changes.h"

namespace heaptap::cli {
namespace {

history::MomentProfile MomentOf(const history::Timeline& timeline, size_t point, history::MomentProfiles& profiles) {
  return profiles.Make({.points = {timeline.points[point]}, .paths = timeline.paths});
}

}  // namespace

LiveChange FindLiveChange(const history::Timeline& timeline, size_t before, size_t after) {
  history::MomentProfiles profiles;
  history::MomentProfile earlier = MomentOf(timeline, before, profiles);
  history::MomentProfile later = MomentOf(timeline, after, profiles);
  LiveChange change = {.difference = profile::Difference(later.profile, earlier.profile)};
  change.measures = report::ChangesOf(change.difference, later.profile, earlier.profile);
  for (const report::Measures& measures : change.measures) change.total += measures.live;
  change.symbols = std::move(later.symbols);
  change.symbols.merge(earlier.symbols);
  return change;
}

report::Measure FindLive(const history::Timeline& timeline, size_t point) {
  history::MomentProfiles profiles;
  const history::MomentProfile moment = MomentOf(timeline, point, profiles);
  report::Measure live;
  for (const profile::Context& context : moment.profile.contexts) {
    live += report::ToMeasure(context.Live());
  }
  return live;
}

}  // namespace heaptap::cli
