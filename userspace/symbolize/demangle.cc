// SPDX-License-Identifier: Apache-2.0
//
// libiberty, not abi::__cxa_demangle: the C++ demangler is the same, but only libiberty knows Rust's two manglings, the
// older of which is also valid C++ and would come out with a hash for a function's name.
#include "userspace/symbolize/demangle.h"

// libiberty declares basename() in another way than <string.h>, unless this says that it exists already.
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
  // Both begin with an underscore in all their forms.
  if (name.empty() || name[0] != '_') return name;
  // Rust first: see above.
  std::unique_ptr<char, Free> text(rust_demangle(name.c_str(), kOptions));
  if (text == nullptr) text.reset(cplus_demangle_v3(name.c_str(), kOptions));
  return text == nullptr ? name : std::string(text.get());
}

}  // namespace heaptap::symbolize
