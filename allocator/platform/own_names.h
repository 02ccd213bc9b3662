// SPDX-License-Identifier: Apache-2.0
//
// The names under which a preloaded library exports its functions, and how it takes them back. It takes them out of its
// own table of symbols: the dynamic linker skips a symbol without a value, so later lookups find what they would have
// found without this library. References that the linker has resolved before are resolved again.
//
// Only in the shared libraries. Called by the first constructor of the process, before there are threads.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_OWN_NAMES_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_OWN_NAMES_H_

namespace heaptap {

// Hides the functions of this library whose names `hides` selects. References to such a name then lead to its next
// definition; where there is none, weak references become null. A name without another definition stays if an object
// has a reference to it that is not weak: the object could not have started without the name.
//
// Where data is limited (RLIMIT_DATA), the system may refuse to write to the tables. The name or the reference stays
// then.
void HideNames(bool (*hides)(const char* name));

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_OWN_NAMES_H_
