// SPDX-License-Identifier: Apache-2.0
//
// Programs find out which allocator they run on by its names: they refer to mallocx or tc_malloc weakly, or ask dlsym,
// and call the function if it is there. The guest must define such a name to see its blocks come back, whatever the
// host is. But if the host lacks the name, a program must not find the guest's definition.
//
// So the guest hides such names when it is loaded (platform/own_names.h). It also hides its operators new and delete
// where the program has operators of its own, which call malloc: a sample is taken there.
#ifndef HEAPTAP_ALLOCATOR_GUEST_NAMES_H_
#define HEAPTAP_ALLOCATOR_GUEST_NAMES_H_

namespace heaptap {

// Hides these names. Called once, by the first constructor of the process. REQUIRES: FindHost.
void HideMissingNames();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_NAMES_H_
