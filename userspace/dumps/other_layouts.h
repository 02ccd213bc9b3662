// SPDX-License-Identifier: Apache-2.0
//
// The recordings of other builds of heaptap. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_DUMPS_OTHER_LAYOUTS_H_
#define HEAPTAP_USERSPACE_DUMPS_OTHER_LAYOUTS_H_

#include <string>

#include "userspace/bpf/pins.h"
#include "userspace/dumps/dumps.h"

namespace heaptap::recording {

// Ends the recordings of other builds that `pins` finds, with a last dump of each of their processes. `states_folder`:
// of TargetStates.
void DrainOtherLayouts(const bpf::Pins& pins, const std::string& states_folder, Dumps& dumps);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_OTHER_LAYOUTS_H_
