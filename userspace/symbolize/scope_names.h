// SPDX-License-Identifier: Apache-2.0
//
// Names of functions with the scopes that they are declared in: namespaces, classes, and for local classes and lambdas
// the functions around them. A function that is local to its file, in an unnamed namespace for example, has no linker's
// name in debug information, and its own name alone says little: "allocate", "operator()".
//
// libdw trusts the file, as userspace/symbolize/dwarf_frames.h says. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_SCOPE_NAMES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_SCOPE_NAMES_H_

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace heaptap::symbolize {

// The most scopes within each other that are followed. Compiled programs have some dozens.
inline constexpr int kMaxScopes = 512;

class ScopeNames {
 public:
  // The name of a function, or of an inlined one: "shop::(anonymous namespace)::Cache::get<int>", and for a lambda in a
  // function "shop::serve::{lambda}::operator()". Parameters are left out. The result is the name alone if the scope is
  // unknown or the unit's language has no scopes of this form, and "" if the function has no name. The first question
  // about a unit walks through the whole unit. `function` must be of a file that outlives this object.
  std::string NameOf(Dwarf_Die* function);

 private:
  // A scope that entries are declared in.
  struct Scope {
    Dwarf_Die entry;
    uint32_t outer;  // index; kUnit: the unit
  };
  static constexpr uint32_t kUnit = ~uint32_t{0};

  std::string NameOf(Dwarf_Die* function, int depth);
  // The name of a scope, with those around it; `inner`: the name that follows. "": unknown.
  std::string NameOfScope(uint32_t scope, const std::string& inner, int depth);
  void ReadUnit(Dwarf_Die* entry);
  void ReadScope(Dwarf_Die* parent, uint32_t scope, int depth);

  absl::flat_hash_set<const void*> units_;               // that have been read, by address
  absl::flat_hash_map<const void*, uint32_t> scope_of_;  // of functions and types, by address
  std::vector<Scope> scopes_;
};

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_SCOPE_NAMES_H_
