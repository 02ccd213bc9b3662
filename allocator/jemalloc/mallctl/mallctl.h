// SPDX-License-Identifier: Apache-2.0
//
// mallctl(3) of jemalloc: names for values that can be read or set, and for actions. The names are in the other files
// of this folder, by area.
//
// Any thread, no lock held. Functions that return int return 0 or an errno value, as in jemalloc:
//
//   ENOENT  there is no such name or MIB, it is not the name of a value, or it needs opt.prof, which is false
//   EPERM   the value cannot be written, or cannot be read
//   EINVAL  a length does not fit the type of the value, or the new value is invalid
//   EFAULT  the action failed
//   EAGAIN  out of memory or room, or a timeout
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_MALLCTL_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_MALLCTL_H_

#include <stddef.h>

#include "allocator/jemalloc/value.h"

namespace heaptap {

// Reads the old value into *old_value (of *old_length bytes) and sets the new one; either may be nullptr. If
// *old_length is wrong, as much of the old value as fits is copied.
int Mallctl(const char* name, void* old_value, size_t* old_length, const void* new_value, size_t new_length);

// Translates a name, or the beginning of one, to at most *mib_length numbers, and sets *mib_length.
int MallctlNameToMib(const char* name, size_t* mib, size_t* mib_length);

// Mallctl with the result of MallctlNameToMib. The caller may change the numbers that are indices in the name.
int MallctlByMib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length, const void* new_value,
                 size_t new_length);

// The value of a name. If it cannot be read, the result does not exist.
StatisticsValue ReadValue(const char* name);

// For the child of a fork: resets the lock of the arenas' names.
void ResetArenaNamesAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_MALLCTL_H_
