// SPDX-License-Identifier: Apache-2.0
//
// mallctl(3) of jemalloc: names for everything that may be read, set or done. The names are in the other files of this
// folder, by area.
//
// Any thread, no lock held. All return 0 or an errno value, as jemalloc's do:
//
//   ENOENT  there is no such name or MIB, it has no value of its own, or it is of no use since opt.prof is false
//   EPERM   the value cannot be written, or not be read
//   EINVAL  a length is not that of the value's type, or the value is none that it can have
//   EFAULT  it could not be done
//   EAGAIN  there is no room for it, or it took too long
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_MALLCTL_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_MALLCTL_H_

#include <stddef.h>

#include "allocator/jemalloc/value.h"

namespace heaptap {

// Reads the old value into *old_value (of *old_length bytes) and sets the new one, where these are given. Where the
// length is wrong, as much of the old value as fits is handed out.
int Mallctl(const char* name, void* old_value, size_t* old_length, const void* new_value, size_t new_length);

// Translates a name, or the beginning of one, to numbers, at most *mib_length of them; sets *mib_length.
int MallctlNameToMib(const char* name, size_t* mib, size_t* mib_length);

// Mallctl for what MallctlNameToMib has made. The numbers that stand for indices in the name may be changed.
int MallctlByMib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length, const void* new_value,
                 size_t new_length);

// The value of a name that has one to read; else a value that does not exist.
StatisticsValue ReadValue(const char* name);

// The child of a fork: nobody is in the middle of naming the arena.
void ResetArenaNameAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_MALLCTL_H_
