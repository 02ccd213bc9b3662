// SPDX-License-Identifier: Apache-2.0
//
// The vDSO: a library that the kernel maps into each process, by which the clock is read without a system call. libc
// reads it too, but may be interposed. Pure; any thread.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_VDSO_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_VDSO_H_

#include <time.h>

namespace heaptap {

using ClockFunction = int (*)(clockid_t clock, timespec* time);

// clock_gettime of the vDSO whose ELF header is `image`. nullptr: `image` is nullptr, or the function is not there.
ClockFunction FindVdsoClock(const void* image);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_VDSO_H_
