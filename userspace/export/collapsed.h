// SPDX-License-Identifier: Apache-2.0
//
// Folded stacks, for flamegraph.pl, inferno, speedscope and the like:
//
//   <outermost>;...;<innermost> <value>        for each call path, by its text
//
// Format: flamegraph.pl of github.com/brendangregg/FlameGraph. Values are estimates; readers do not correct for
// sampling.
#ifndef HEAPTAP_USERSPACE_EXPORT_COLLAPSED_H_
#define HEAPTAP_USERSPACE_EXPORT_COLLAPSED_H_

#include <string>

#include "userspace/export/source_frames.h"
#include "userspace/profile/profile.h"

namespace heaptap::exporter {

enum class CollapsedValue { kLiveBytes, kLiveObjects, kAllocatedBytes, kAllocatedObjects };

// The profile in that format. Contexts whose names are the same are one line; what is not more than 0 is left out.
// Names are FrameNames', but for ';', which becomes ':', and for a blank that readers would take for the one before the
// value, which becomes '_'. Takes linear time, but for sorting. Thread-safe if `find` is.
std::string Collapsed(const profile::Profile& profile, CollapsedValue value, const FindSourceFrames& find);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_COLLAPSED_H_
