// SPDX-License-Identifier: Apache-2.0
//
// The names of threads, sizes and ages, the same in every view. userspace/web/classes.ts has the names of sizes and
// ages too. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_ROOT_NAMES_H_
#define HEAPTAP_USERSPACE_REPORT_ROOT_NAMES_H_

#include <cstdint>
#include <string>

#include "userspace/profile/profile.h"

namespace heaptap::report {

// "thread 5 worker", or "heap:\"arena 1\"", printable. Threads that have ended and hold nothing are counted as one,
// with the tid 0.
std::string NameOfThread(const profile::Profile& profile, uint32_t tid);

// "blocks of 1024 bytes".
std::string NameOfSize(uint64_t bytes);

// "1 s to 10 s". `seconds`: where the range begins (profile/ages.h), or kUnknownAge.
std::string NameOfAge(uint32_t seconds);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_ROOT_NAMES_H_
