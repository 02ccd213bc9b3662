// SPDX-License-Identifier: Apache-2.0
//
// Folded stacks, for flamegraph.pl, inferno, speedscope and the like:
//
//   <outermost>;...;<innermost> <value>        for each call path, sorted by text
//
// Format: flamegraph.pl of github.com/brendangregg/FlameGraph. Values are estimates; readers do not correct for
// sampling.
#ifndef HEAPTAP_USERSPACE_FORMATS_COLLAPSED_H_
#define HEAPTAP_USERSPACE_FORMATS_COLLAPSED_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::formats {

// Freed: allocated and no longer live.
enum class CollapsedValue { kLiveBytes, kLiveObjects, kAllocatedBytes, kAllocatedObjects, kFreedBytes, kFreedObjects };

// The profile in that format. Contexts with the same names are one line; values of 0 or less are left out. A context
// whose outer frames are missing begins with kOuterFramesMissing. Names come from FrameNames; ';' in a name becomes
// ':', and a blank that readers would take for the one before the value becomes '_'. Takes linear time, except for
// sorting. Thread-safe if `find` is.
std::string Collapsed(const profile::Profile& profile, CollapsedValue value, const profile::FindSourceFrames& find);
// OutOfRange: the text would have more than `most` bytes. Takes about twice as much memory as the text.
absl::StatusOr<std::string> CollapsedWithin(uint64_t most, const profile::Profile& profile, CollapsedValue value,
                                            const profile::FindSourceFrames& find);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_COLLAPSED_H_
