// SPDX-License-Identifier: Apache-2.0
//
// The vDSO is a library that the kernel maps into each process; it reads the clock without a system call. libc's
// clock_gettime uses it too, but may be interposed. Pure; any thread.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_VDSO_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_VDSO_H_

#include <time.h>

namespace heaptap {

using ClockFunction = int (*)(clockid_t clock, timespec* time);

// clock_gettime of the vDSO with the ELF header `image`. nullptr: `image` is nullptr, or there is no such function.
ClockFunction FindVdsoClock(const void* image);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_VDSO_H_
