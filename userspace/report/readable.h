// SPDX-License-Identifier: Apache-2.0
//
// Names of C++ and Rust functions as people want to read them. Functions here are thread-safe and take linear time.
#ifndef HEAPTAP_USERSPACE_REPORT_READABLE_H_
#define HEAPTAP_USERSPACE_REPORT_READABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::report {

// The name without parameters, return type and Rust's hash, and with its template arguments cut to "<...>":
// "std::vector<int, std::allocator<int> >::push_back(int&&)" becomes "std::vector<...>::push_back". Names of other
// languages stay as they are.
std::string ReadableName(absl::string_view name);

// Whether this is the place of code without a name in the library of an allocator: "libjemalloc.so.2+0xa2630". Debian's
// allocators are stripped.
bool IsInAllocator(absl::string_view name);

// Whether the function only passes an allocation on, so that its caller is of more interest: an allocator's function,
// operator new, the standard library of C++ or Rust. Also a place without a name in the libraries of allocators and of
// C++: "libstdc++.so.6+0xd44a2".
bool IsPlumbing(absl::string_view name);
// Like the function above, for a frame with its source file ("": unknown). True also for inlined code of the standard
// library's headers, and for code of Rust's library, whatever its name is. `is_inline`: file and name are both from
// debug information.
bool IsPlumbing(absl::string_view name, absl::string_view file, bool is_inline);

// Whether the function only starts a program or a thread.
bool IsStart(absl::string_view name);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_READABLE_H_
