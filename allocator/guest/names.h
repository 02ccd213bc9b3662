// SPDX-License-Identifier: Apache-2.0
//
// Programs find out which allocator they run on by its names: they refer to mallocx or tc_malloc weakly, or ask dlsym,
// and call it if it is there. The guest must define such a name to see its blocks come back, whatever the host is. But
// where the host lacks it, a program must not find the guest's.
//
// So the guest takes such names out of its own table of symbols when it is loaded. The dynamic linker skips a symbol
// without a value, so later lookups find what they would have found without the guest. References that the linker has
// resolved before are reset: a weak reference to a name that nobody else defines is null.
#ifndef HEAPTAP_ALLOCATOR_GUEST_NAMES_H_
#define HEAPTAP_ALLOCATOR_GUEST_NAMES_H_

namespace heaptap {

// Hides the names that the host lacks. Called once, by the first constructor of the process. REQUIRES: FindHost.
void HideMissingNames();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_NAMES_H_
