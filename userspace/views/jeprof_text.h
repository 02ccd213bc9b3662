// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --text`: the table of `jeprof --text`, with the same functions and the same digits, for people and
// scripts that know it.
//
// Format: PrintText of jeprof 5.3. A line has the memory that a function allocated itself, its share, the share of all
// lines so far, the memory that the function allocated with its callees, and the share of that memory. Bytes are shown
// as MB unless `show_bytes`. Names are jeprof's short names: without parameters, template arguments and return type.
#ifndef HEAPTAP_USERSPACE_VIEWS_JEPROF_TEXT_H_
#define HEAPTAP_USERSPACE_VIEWS_JEPROF_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/rows.h"

namespace heaptap::report {

struct JeprofOptions {
  Value value = Value::kLive;  // --inuse_space, --alloc_space
  Unit unit = Unit::kBytes;    // --inuse_objects, --alloc_objects
  bool show_bytes = false;
  bool lines = false;     // names are "function file:line"
  bool by_total = false;  // --cum: sorted by the second figure
  // Perl's regular expressions as far as RE2 knows them; "": no filter.
  std::string focus = {};
  std::string ignore = {};
  std::string exclude = {};  // frames whose function matches are left out
  std::string retain = {};   // frames whose function does not match are left out
};

// InvalidArgument: an expression is wrong. Thread-safe.
absl::StatusOr<std::string> JeprofText(const NamedProfile& profile, const JeprofOptions& options);

// The name as jeprof shortens it (ShortFunctionName). Thread-safe.
std::string JeprofName(absl::string_view name);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_JEPROF_TEXT_H_
