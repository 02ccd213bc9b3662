// SPDX-License-Identifier: Apache-2.0
//
// Uses libiberty: its C++ demangler is the same as abi::__cxa_demangle, but it also knows Rust's two manglings. The
// older of them is valid C++ too, and would come out with a hash as the name of the function.
#include "userspace/symbolize/demangle.h"

// Stops libiberty from declaring basename(), which <string.h> declares in another way.
#define HAVE_DECL_BASENAME 1
#include <libiberty/demangle.h>
#include <stdlib.h>

#include <memory>

namespace heaptap::symbolize {

std::string Demangle(const std::string& name) {
  constexpr int kOptions = DMGL_PARAMS | DMGL_ANSI;
  struct Free {
    void operator()(char* text) const { free(text); }
  };
  // Mangled names of both languages begin with an underscore.
  if (name.empty() || name[0] != '_') return name;
  // Rust first, because its older mangling is valid C++.
  std::unique_ptr<char, Free> text(rust_demangle(name.c_str(), kOptions));
  if (text == nullptr) text.reset(cplus_demangle_v3(name.c_str(), kOptions));
  return text == nullptr ? name : std::string(text.get());
}

}  // namespace heaptap::symbolize
