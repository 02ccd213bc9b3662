// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_ALLOCATOR_MALLCTL_H_
#define HEAPTAP_ALLOCATOR_MALLCTL_H_

#include <stddef.h>

namespace heaptap {

// mallctl(3) of jemalloc, as far as profiling asks. Reads the old value into *old_value (of *old_length bytes) and
// sets the new one, where these are given. Any thread. Returns 0 or an errno value, as jemalloc's does:
//   ENOENT  there is no such name, or it is of no use since opt.prof is false
//   EPERM   the value cannot be written, or not be read
//   EINVAL  a length is not that of the value's type
//   EFAULT, EAGAIN  the dump failed (dump.h)
//
// Names:
//   opt.prof     bool, read only
//   prof.active  bool: whether samples are taken, if a collector listens
//   prof.dump    const char*, write only: dumps to the file of that name, nullptr or nothing for an automatic name
int Mallctl(const char* name, void* old_value, size_t* old_length, void* new_value, size_t new_length);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_MALLCTL_H_
