// SPDX-License-Identifier: Apache-2.0
//
// Converts the linker's names of functions to the names in the source.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_DEMANGLE_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_DEMANGLE_H_

#include <string>

namespace heaptap::symbolize {

// The name in the notation of C++ or Rust; other names are returned as they are. A short hostile name can stand for a
// very long text and cost any amount of time, memory and stack, so this is called in confined processes only.
// Thread-safe.
std::string Demangle(const std::string& name);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_DEMANGLE_H_
