// SPDX-License-Identifier: Apache-2.0
//
// From the linker's names of functions to the source's.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_DEMANGLE_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_DEMANGLE_H_

#include <string>

namespace heaptap::symbolize {

// The name in C++'s or Rust's own notation; a name that is neither as it is. A short hostile name can stand for a text
// of any length and cost any time, memory and stack: to be called where that does no harm. Thread-safe.
std::string Demangle(const std::string& name);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DEMANGLE_H_
