// SPDX-License-Identifier: Apache-2.0
//
// libdw's entries do not know their parents, and dwarf_getscopes_die walks through the unit for each question. So a
// unit is walked through once, and the scopes of its functions and types are kept, for a bounded number of entries.
#include "userspace/symbolize/scope_names.h"

#include <dwarf.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace heaptap::symbolize {
namespace {

// Links that are followed from entry to entry. Compiled programs have a few.
constexpr int kMaxLinks = 16;
// Entries that are kept when the next question comes: about 40 MB.
constexpr size_t kMaxEntries = 1 << 20;

constexpr char kLambda[] = "{lambda}";
constexpr char kCall[] = "operator()";

// Where the entry was declared: an inlined function leads to its abstract instance, a definition to its declaration.
Dwarf_Die DeclarationOf(Dwarf_Die entry) {
  for (int links = 0; links < kMaxLinks; links++) {
    Dwarf_Attribute attribute;
    Dwarf_Die next;
    Dwarf_Attribute* link = dwarf_attr(&entry, DW_AT_abstract_origin, &attribute);
    if (link == nullptr) link = dwarf_attr(&entry, DW_AT_specification, &attribute);
    if (link == nullptr || dwarf_formref_die(link, &next) == nullptr) break;
    entry = next;
  }
  return entry;
}

std::string OwnName(Dwarf_Die* entry) {
  Dwarf_Attribute attribute;
  const char* name = dwarf_formstring(dwarf_attr_integrate(entry, DW_AT_name, &attribute));
  return name == nullptr ? "" : name;
}

// Whether the entry's language names scopes as C++ does. Units of dwz(1) have no language; the units that use them have
// one.
bool HasScopes(Dwarf_Die* entry) {
  Dwarf_Die unit;
  if (dwarf_diecu(entry, &unit, nullptr, nullptr) == nullptr) return false;
  switch (dwarf_srclang(&unit)) {
    case DW_LANG_C_plus_plus:
    case DW_LANG_C_plus_plus_03:
    case DW_LANG_C_plus_plus_11:
    case DW_LANG_C_plus_plus_14:
    case DW_LANG_ObjC_plus_plus:
    case DW_LANG_Rust:
    case 0x2a:  // of DWARF 6: C++17, C++20, C++23
    case 0x2b:
    case 0x3a:
      return true;
    default:
      return false;
  }
}

bool IsClass(int tag) {
  return tag == DW_TAG_class_type || tag == DW_TAG_structure_type || tag == DW_TAG_union_type ||
         tag == DW_TAG_enumeration_type;
}

}  // namespace

std::string ScopeNames::NameOf(Dwarf_Die* function) {
  if (!HasScopes(function)) return OwnName(function);
  // The tables can be cleared only here, because indexes of scopes are in use later.
  if (scope_of_.size() > kMaxEntries) {
    units_.clear();
    scope_of_.clear();
    scopes_.clear();
  }
  return NameOf(function, 0);
}

std::string ScopeNames::NameOf(Dwarf_Die* function, int depth) {
  std::string name = OwnName(function);
  if (name.empty() || depth > kMaxScopes) return name;
  Dwarf_Die declaration = DeclarationOf(*function);
  ReadUnit(&declaration);
  const auto found = scope_of_.find(declaration.addr);
  if (found == scope_of_.end() || found->second == kUnit) return name;
  const std::string scope = NameOfScope(found->second, name, depth + 1);
  return scope.empty() ? name : absl::StrCat(scope, "::", name);
}

std::string ScopeNames::NameOfScope(uint32_t scope, const std::string& inner, int depth) {
  if (depth > kMaxScopes || scope >= scopes_.size()) return "";
  Dwarf_Die entry = scopes_[scope].entry;
  const int tag = dwarf_tag(&entry);
  // The function may be declared elsewhere.
  if (tag == DW_TAG_subprogram) return NameOf(&entry, depth + 1);
  uint32_t outer = scopes_[scope].outer;
  std::string name = OwnName(&entry);
  if (IsClass(tag)) {
    Dwarf_Die declaration = DeclarationOf(entry);
    if (declaration.addr != entry.addr) {
      ReadUnit(&declaration);
      const auto found = scope_of_.find(declaration.addr);
      if (found == scope_of_.end()) return "";
      outer = found->second;
    }
    // GCC calls the class of a lambda "<lambda(int)>"; clang gives it no name.
    if (absl::StartsWith(name, "<lambda") || (name.empty() && inner == kCall)) name = kLambda;
    if (name.empty()) name = "{unnamed type}";
  } else if (name.empty()) {
    if (tag != DW_TAG_namespace) return "";
    name = "(anonymous namespace)";
  }
  if (outer == kUnit) return name;
  const std::string around = NameOfScope(outer, name, depth + 1);
  return around.empty() ? "" : absl::StrCat(around, "::", name);
}

void ScopeNames::ReadUnit(Dwarf_Die* entry) {
  Dwarf_Die unit;
  if (dwarf_diecu(entry, &unit, nullptr, nullptr) == nullptr || units_.contains(unit.addr)) return;
  units_.insert(unit.addr);
  ReadScope(&unit, kUnit, 0);
}

void ScopeNames::ReadScope(Dwarf_Die* parent, uint32_t scope, int depth) {
  Dwarf_Die child;
  if (depth > kMaxScopes || dwarf_child(parent, &child) != 0) return;
  do {
    const int tag = dwarf_tag(&child);
    if (tag == DW_TAG_lexical_block) {
      ReadScope(&child, scope, depth + 1);
      continue;
    }
    const bool is_scope = tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_subprogram || IsClass(tag);
    if (!is_scope) continue;
    scope_of_.try_emplace(child.addr, scope);
    // Nothing is declared in the declaration of a function.
    if (dwarf_haschildren(&child) == 0 || (tag == DW_TAG_subprogram && dwarf_hasattr(&child, DW_AT_declaration) != 0)) {
      continue;
    }
    scopes_.push_back({.entry = child, .outer = scope});
    ReadScope(&child, static_cast<uint32_t>(scopes_.size() - 1), depth + 1);
  } while (dwarf_siblingof(&child, &child) == 0);
}

}  // namespace heaptap::symbolize
