// SPDX-License-Identifier: Apache-2.0
//
// Programs with a sanitizer of GCC or clang, which brings an allocator. In some of them a preloaded library ends the
// program before main.
#ifndef HEAPTAP_USERSPACE_PROCESS_SANITIZERS_H_
#define HEAPTAP_USERSPACE_PROCESS_SANITIZERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/process/preload.h"

namespace heaptap::process {

// With this option AddressSanitizer accepts a library before its own.
inline constexpr char kLinkOrderOption[] = "ASAN_OPTIONS=verify_asan_link_order=0";

// Checks that the sanitizer of a program, if it has one, lets the program start with `which`. `files`: from
// FilesOfProgram. Reads ASAN_OPTIONS of this process, which the program inherits. FailedPrecondition: the program would
// end before main. Thread-safe.
absl::Status CheckSanitizer(Library which, const std::vector<std::string>& files);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_SANITIZERS_H_
